// The arrays of a call, as views.
#pragma once

#include <nanobind/nanobind.h>

#include <vector>

#include "borrowed.h"
#include "call_stream.h"

namespace ps::python {

// Holds the arrays until the call has returned. None gives an empty view.
class Views {
 public:
  explicit Views(const CallStream& on) : on_(on) {}

  TensorView add(nb::handle array, const char* argument, int sensor = -1) {
    return add(array, {.argument = argument, .sensor = sensor});
  }
  TensorView add_written(nb::handle array, const char* argument) {
    return add(array, {.argument = argument, .access = Access::write});
  }
  // Contiguous memory of any type, to be written.
  MemoryView add_memory(nb::handle array, const char* argument) {
    if (array.is_none()) return {};
    return add(array, {.argument = argument, .access = Access::write, .elements = Elements::bytes})
        .memory();
  }

 private:
  TensorView add(nb::handle array, BorrowOptions options) {
    if (array.is_none()) return {};
    options.stream = pointer_to(on_.stream);
    options.library = on_.library;
    if (const auto view = view_in_place(array, options)) return *view;
    held_.emplace_back(array, options);
    return held_.back().view();
  }

  const CallStream& on_;
  std::vector<Borrowed> held_;
};

}  // namespace ps::python
