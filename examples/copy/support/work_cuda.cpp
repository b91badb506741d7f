#include "copy/support/work.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "penstock/base/error.h"
#include "penstock/host/cuda.h"
#include "penstock/ops/iterate.h"
#include "support/check_cuda.h"
#include "support/kernel_arguments.h"

namespace ladder::copy {
namespace {

constexpr std::uintptr_t boundary = 16;

void check_options(Formula formula, const Options& options, const ps::Device& device) {
  check_view("in", options.in, ps::DType::f32, device);
  check_view("out", options.out, ps::DType::f32, device);
  if (options.out.elements() != options.in.elements()) {
    throw ps::InvalidArgument("out", "as many elements as in, " + options.in.describe(),
                              options.out.describe());
  }
  if (options.rounds < 0) {
    throw ps::InvalidArgument("rounds", "0 or more", std::to_string(options.rounds));
  }
  check_apart("out", options.out, "in", options.in);
  if (formula != Formula::row) return;
  check_view("coefficients", options.coefficients, ps::DType::f32, device);
  const std::size_t needed = coefficients_for(static_cast<std::size_t>(options.in.elements()));
  if (std::cmp_not_equal(options.coefficients.elements(), needed)) {
    throw ps::InvalidArgument("coefficients", fmt::format("{} elements", needed),
                              options.coefficients.describe());
  }
  check_apart("out", options.out, "coefficients", options.coefficients);
}

// The neighbours of element i in the rows above and below.
std::pair<float, float> neighbours(std::span<const float> in, std::size_t i) {
  return {i >= width ? in[i - width] : in[i], i + width < in.size() ? in[i + width] : in[i]};
}

std::size_t coefficient_of(std::size_t i) { return i / width / group * width + i % width; }

}  // namespace

std::string_view name(Formula formula) {
  switch (formula) {
    case Formula::plain:
      return "plain";
    case Formula::row:
      return "coefficient row";
    case Formula::stencil:
      return "stencil";
  }
  return "unknown";
}

std::string_view name(Intensity intensity) {
  switch (intensity) {
    case Intensity::copy_bound:
      return "copy-bound";
    case Intensity::balanced:
      return "balanced";
    case Intensity::compute_bound:
      return "compute-bound";
  }
  return "unknown";
}

float expected(Formula formula, std::span<const float> in, std::span<const float> coefficients,
               int rounds, std::size_t i) {
  float x = in[i];
  if (formula == Formula::stencil) {
    const auto [above, below] = neighbours(in, i);
    x = std::fma(0.5F, x, 0.25F * (above + below));
  }
  x = ps::iterated(x, rounds);
  return formula == Formula::row ? x * coefficients[coefficient_of(i)] : x;
}

double exact(Formula formula, std::span<const float> in, std::span<const float> coefficients,
             int rounds, std::size_t i) {
  double x = in[i];
  if (formula == Formula::stencil) {
    const auto [above, below] = neighbours(in, i);
    x = 0.5 * x + 0.25 * (static_cast<double>(above) + below);
  }
  // In closed form: the distance from the fixed point shrinks by the same factor each round.
  const double scale = ps::iterate_scale, fixed = ps::iterate_shift / (1 - scale);
  x = fixed + (x - fixed) * std::pow(scale, rounds);
  return formula == Formula::row ? x * coefficients[coefficient_of(i)] : x;
}

std::string why_not(const Kernel& kernel, const ps::Device& device) {
  return why_no_kernel(device, kernel.hopper);
}

void enqueue(const Kernel& kernel, const Options& options, const ps::Stream& stream) {
  const ps::Device device = stream.device();
  if (const std::string why = why_not(kernel, device); !why.empty()) {
    throw ps::Unsupported(fmt::format("the kernel '{}': {}", kernel.label, why));
  }
  check_options(kernel.formula, options, device);
  if (options.in.elements() == 0) return;
  check(cudaSetDevice(device.index()), "cudaSetDevice");
  kernel.launch({.in = static_cast<const float*>(options.in.data()),
                 .out = static_cast<float*>(options.out.data()),
                 .count = static_cast<std::size_t>(options.in.elements()),
                 .rounds = options.rounds,
                 .coefficients = static_cast<const float*>(options.coefficients.data())},
                ps::cuda_stream(stream));
}

void launch_aligned(const Work& work, std::size_t granule, cudaStream_t stream,
                    const std::function<void(const Work& aligned)>& kernel) {
  const auto in = reinterpret_cast<std::uintptr_t>(work.in) % boundary;
  const auto out = reinterpret_cast<std::uintptr_t>(work.out) % boundary;
  const std::size_t head =
      std::min<std::size_t>((boundary - in) % boundary / sizeof(float), work.count);
  const std::size_t body = in == out ? (work.count - head) / granule * granule : 0;
  if (body > 0) {
    Work aligned = work;
    aligned.in += head;
    aligned.out += head;
    aligned.count = body;
    kernel(aligned);
  }
  if (body < work.count) launch_plain(Formula::plain, work, head, head + body, stream);
}

}  // namespace ladder::copy
