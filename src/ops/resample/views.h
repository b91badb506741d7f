// Checks of single views, for the door of resample.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "penstock/base/view.h"
#include "penstock/host/device.h"

namespace ps::resampling {

// A view and what the user calls it, which is put into words for an error only.
struct Named {
  const char* argument;
  const TensorView& view;
  int sensor = -1;  // whose argument it is; -1: the call's own

  std::string name() const;  // "sensors[2].values", or "at"
};

// Whether a view that may be left out is there.
bool given(const TensorView& view);

// "f32[4, 128] on cuda:0", or "none".
std::string described(const TensorView& view);

// The stride of a dimension; 0 where there are no elements to step between.
std::int64_t step(const TensorView& view, std::size_t dimension);

// Throw InvalidArgument. `meaning` explains the shape.
void check_type(const Named& argument, std::initializer_list<DType> types);
void check_same_type(const Named& argument, const Named& as);
void check_shape(const Named& argument, std::initializer_list<std::int64_t> shape,
                 std::string_view meaning);
void check_memory(const Named& argument, const Device& device);  // its place and alignment

// That no two of its elements are one, and none is an element of `others`. Between views whose
// elements alternate no difference is made.
void check_apart(const Named& result, std::span<const Named> others);

}  // namespace ps::resampling
