// Elementwise functions by the names that they, and their inputs, have in Python.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/ops/transform.h"

namespace ps::python {

struct ElementwiseCall {
  std::vector<TensorView> in;
  TensorView out;
  float a = 1, b = 1;
  TransformKernel kernel = TransformKernel::best;
};

struct Elementwise {
  std::string_view name;
  std::vector<const char*> inputs;  // their names; empty: any number of inputs
  std::function<void(const ElementwiseCall&, const Stream&)> run;

  std::string input(std::size_t number) const;  // its name
  void check_inputs(std::size_t count) const;
};

const Elementwise& elementwise_named(std::string_view name);

}  // namespace ps::python
