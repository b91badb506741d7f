// The work of the copy ladder: y = f(x) over floats, where f is as many multiply-adds as asked for.
// Every rung does it, so that only the way the bytes take differs.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/base/view.h"
#include "penstock/host/stream.h"
#include "support/kernel_use.h"

namespace ladder::copy {

// f is ps::iterate's: `rounds` times x <- iterate_scale * x + iterate_shift.
enum class Formula : unsigned char {
  plain,    // y = f(x)
  row,      // y = c * f(x): `group` rows of x share a row of coefficients
  stencil,  // y = f of the mean of x, twice, and its neighbours in the rows above and below
};
std::string_view name(Formula formula);

// Where a formula needs rows, element i is in row i / width of a matrix; the last row may be short.
// At the matrix' edges an element is its own neighbour.
inline constexpr std::size_t width = 2048;
inline constexpr std::size_t group = 4;

// Coefficients that `count` elements need: whole rows.
constexpr std::size_t coefficients_for(std::size_t count) {
  return (count + group * width - 1) / (group * width) * width;
}

// The arguments of a kernel. Checked; `count` is above 0.
struct Work {
  const float* in = nullptr;
  float* out = nullptr;
  std::size_t count = 0;
  int rounds = 0;
  const float* coefficients = nullptr;  // Formula::row
};

// What element i becomes: the reference, in the kernels' own precision and order. The kernels must
// agree with it in every bit.
float expected(Formula formula, std::span<const float> in, std::span<const float> coefficients,
               int rounds, std::size_t i);

// The same in double precision, which bounds what the order of operations may cost.
double exact(Formula formula, std::span<const float> in, std::span<const float> coefficients,
             int rounds, std::size_t i);

enum class Intensity : unsigned char { copy_bound, balanced, compute_bound };
std::string_view name(Intensity intensity);
inline constexpr Intensity all_intensities[] = {Intensity::copy_bound, Intensity::balanced,
                                                Intensity::compute_bound};

// One kernel of a rung: a row of its table for every intensity.
struct Kernel {
  std::string label = {};
  std::function<void(const Work& work, cudaStream_t stream)> launch = {};
  std::function<KernelUse()> use = {};
  Formula formula = Formula::plain;
  bool hopper = false;  // runs on compute capability 9.0 alone, else from 8.0 on
  std::vector<Intensity> at{std::begin(all_intensities), std::end(all_intensities)};
};

struct Options {
  ps::TensorView in = {};   // f32, contiguous, on the stream's device; any size, any alignment
  ps::TensorView out = {};  // as many, apart from `in`
  int rounds = 0;
  ps::TensorView coefficients = {};  // Formula::row: coefficients_for(in) of them
};

// Checks the arguments, makes the stream's device current and launches. Throws InvalidArgument;
// Unsupported where this GPU cannot run the kernel. Enqueues and returns.
void enqueue(const Kernel& kernel, const Options& options, const ps::Stream& stream);

// Why `device` cannot run the kernel; empty where it can.
std::string why_not(const Kernel& kernel, const ps::Device& device);

// The slower path that rungs share: plain loads, one element a thread, for any size and alignment.
// Leaves out elements [skip_begin, skip_end).
void launch_plain(Formula formula, const Work& work, std::size_t skip_begin, std::size_t skip_end,
                  cudaStream_t stream);

// Launches `kernel` on the part of the work that begins at a boundary of 16 bytes in both arrays
// and is a multiple of `granule` elements, and the slower path on what comes before and behind it.
// All of it goes the slower way where the two arrays do not meet boundaries together.
void launch_aligned(const Work& work, std::size_t granule, cudaStream_t stream,
                    const std::function<void(const Work& aligned)>& kernel);

}  // namespace ladder::copy
