// The work of the resample ladder: rows of bf16 or f32 that were taken at irregular times, brought
// to wanted times by straight lines, clamped at both ends. It is ps::resample with one sensor, and
// every rung gives its bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "penstock/base/view.h"
#include "penstock/host/stream.h"
#include "penstock/kit/config.h"
#include "support/kernel_use.h"

namespace ladder::resample {

// The arguments of a kernel. Checked; there is at least one result. Rows are numbered through all
// episodes.
struct Work {
  const void* values = nullptr;           // (episodes, samples, columns)
  const float* times = nullptr;           // (episodes, samples), not decreasing
  const std::int32_t* lengths = nullptr;  // (episodes): the first samples, which count; none: all
  const float* at = nullptr;              // (episodes, targets), in any order
  void* out = nullptr;                    // (episodes, targets, columns)
  ps::DType type = ps::DType::bf16;       // of values and results, or f32
  unsigned episodes = 0, samples = 0, targets = 0, columns = 0;

  PENSTOCK_HD unsigned all_samples() const { return episodes * samples; }
  PENSTOCK_HD unsigned all_targets() const { return episodes * targets; }

  template <class Element>
  PENSTOCK_HD const Element* row_of_values(unsigned row) const {
    return static_cast<const Element*>(values) + std::size_t{row} * columns;
  }
  template <class Element>
  PENSTOCK_HD Element* row_of_results(unsigned target) const {
    return static_cast<Element*>(out) + std::size_t{target} * columns;
  }
};

// Vectors of 16 bytes, where rows are whole ones.
inline constexpr unsigned vector_bytes = 16;
template <class Element>
inline constexpr unsigned vector_elements = vector_bytes / sizeof(Element);

// Why a kernel that needs rows of whole vectors, of at most `most_row_bytes`, does not run this
// work; empty if it does. Such rungs leave other work to by_warps().
std::string why_left(const Work& work, std::size_t most_row_bytes);
inline constexpr std::size_t any_row_bytes = ~std::size_t{0};

// The rung of the warps that search, for any size and alignment.
void by_warps(const Work& work, const ps::Stream& stream);

// A function for each type of the values. Both are named where a kernel is listed, so that their
// kernels are in the program.
template <class Function>
struct ByType {
  Function* bf16 = nullptr;
  Function* f32 = nullptr;

  Function* of(ps::DType type) const { return type == ps::DType::f32 ? f32 : bf16; }
};

// One kernel of a rung: a row of its table for every case.
struct Kernel {
  std::string label = {};
  ByType<void(const Work& work, const ps::Stream& stream)> launch = {};
  ByType<KernelUse()> use = {};    // none: the row is not about one kernel
  bool hopper = false;             // runs on compute capability 9.0 alone, else from 8.0 on
  std::size_t most_row_bytes = 0;  // runs rows of whole vectors up to this size; 0: any rows
};

// Why the rung of this kernel leaves the work to by_warps(); empty if it runs the kernel.
std::string why_left(const Kernel& kernel, const Work& work);

// Contiguous, on the stream's device, of any alignment; `out` apart from the others. Values and
// results are bf16 or f32, times f32.
struct Options {
  ps::TensorView values = {};   // (B, S, D)
  ps::TensorView times = {};    // (B, S)
  ps::TensorView lengths = {};  // none, or i32 (B): how many of an episode's samples count
  ps::TensorView at = {};       // (B, T)
  ps::TensorView out = {};      // (B, T, D)
};

// Checks the arguments, makes the stream's device current and launches. Throws InvalidArgument;
// Unsupported where this GPU cannot run the kernel. Enqueues and returns.
void enqueue(const Kernel& kernel, const Options& options, const ps::Stream& stream);

// Why `device` cannot run the kernel; empty where it can.
std::string why_not(const Kernel& kernel, const ps::Device& device);

}  // namespace ladder::resample
