// The elementwise functions that transform is measured on: ours, CUB's DeviceTransform with the
// same function, every tuning of our kernels, and a check against f64.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "penstock/base/dtype.h"
#include "penstock/ops/transform.h"

namespace bench {

// Device memory of one call.
struct TransformSet {
  std::array<void*, 4> in{};
  void* out = nullptr;
  std::size_t elements = 0;
};

using EnqueueTransform = std::function<void(const TransformSet& set, const ps::Stream& stream)>;

struct NamedEnqueue {
  std::string name;
  EnqueueTransform enqueue;
};

struct TransformCase {
  std::string name;  // "cast f32 to bf16"
  unsigned inputs = 1;
  ps::DType in = ps::DType::f32, out = ps::DType::f32;
  std::function<void(const TransformSet&, ps::TransformKernel, const ps::Stream&)> ours;
  std::vector<NamedEnqueue> cub;       // by elements, and by vectors of them
  std::vector<NamedEnqueue> variants;  // of our kernels' tunings
  // The largest error of all elements of set.out, in units of what rounding allows: 1 is the most.
  // Waits for the stream. NaN counts as infinity.
  std::function<double(const TransformSet& set, const ps::Stream& stream)> error;

  std::size_t bytes_per_element() const { return inputs * ps::size_of(in) + ps::size_of(out); }
};

// All eight. Needs Hopper.
const std::vector<TransformCase>& transform_cases();

// Random numbers near 0, of the case's type, into every input.
void fill_random(const TransformCase& of, const TransformSet& set, const ps::Stream& stream);

}  // namespace bench
