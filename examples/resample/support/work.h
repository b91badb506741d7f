// The work of the resample ladder: rows of bf16 that were taken at irregular times, brought to
// wanted times by straight lines, clamped at both ends. It is ps::resample with one sensor, and
// every rung gives its bits.
#pragma once

#include <cuda_bf16.h>

#include <functional>
#include <string>

#include "penstock/base/view.h"
#include "penstock/host/stream.h"
#include "penstock/kit/config.h"
#include "support/kernel_use.h"

namespace ladder::resample {

// What a kernel is told. Checked; there is at least one result. Rows are numbered through all
// episodes.
struct Work {
  const __nv_bfloat16* values = nullptr;  // (episodes, samples, columns)
  const float* times = nullptr;           // (episodes, samples), not decreasing
  const float* at = nullptr;              // (episodes, targets), in any order
  __nv_bfloat16* out = nullptr;           // (episodes, targets, columns)
  unsigned episodes = 0, samples = 0, targets = 0, columns = 0;

  PENSTOCK_HD unsigned all_samples() const { return episodes * samples; }
  PENSTOCK_HD unsigned all_targets() const { return episodes * targets; }
};

// Vectors of 16 bytes, where rows are whole ones.
inline constexpr unsigned vector_elements = 8, vector_bytes = 16;

// Whether rows are whole vectors and there are any. Rungs whose idea needs that leave other work to
// by_warps().
bool has_vectors(const Work& work);

// The rung of the warps that search, for any size and alignment.
void by_warps(const Work& work, const ps::Stream& stream);

// One kernel of a rung: a row of its table for every case.
struct Kernel {
  std::string label = {};
  std::function<void(const Work& work, const ps::Stream& stream)> launch = {};
  std::function<KernelUse()> use = {};  // none: the row is not about one kernel
  bool hopper = false;                  // runs on compute capability 9.0 alone, else from 8.0 on
};

// bf16 and f32, contiguous, on the stream's device, of any alignment; `out` apart from the others.
struct Options {
  ps::TensorView values = {};  // (B, S, D)
  ps::TensorView times = {};   // (B, S)
  ps::TensorView at = {};      // (B, T)
  ps::TensorView out = {};     // (B, T, D)
};

// Checks the arguments, makes the stream's device current and launches. Throws InvalidArgument;
// Unsupported where this GPU cannot run the kernel. Enqueues and returns.
void enqueue(const Kernel& kernel, const Options& options, const ps::Stream& stream);

// Why `device` cannot run the kernel; empty where it can.
std::string why_not(const Kernel& kernel, const ps::Device& device);

}  // namespace ladder::resample
