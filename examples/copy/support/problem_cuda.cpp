#include "copy/support/problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <stdexcept>

#include "copy/support/checks.h"
#include "penstock/base/checked.h"
#include "penstock/base/units.h"
#include "penstock/host/cuda.h"
#include "support/check_cuda.h"

namespace ladder::copy {
namespace {

constexpr std::uint8_t poison = 0xFF;  // four of them are a NaN
constexpr int unrolled = 32;           // rounds that f does at a time
constexpr unsigned input_seed = 1, coefficients_seed = 2;

// How many arrays must take turns for none to be in the cache when its turn comes.
std::size_t copies_of(const ps::Device& device, std::size_t bytes) {
  return std::clamp<std::size_t>(ps::ceil_div(3 * device.capabilities().l2_bytes, 2 * bytes), 1,
                                 64);
}

std::string work_name(Formula formula, Intensity intensity) {
  const std::string before = formula == Formula::plain ? "" : fmt::format("{}, ", name(formula));
  return before + std::string(name(intensity));
}

ps::TensorView view(const ps::Device& device, float* data, std::size_t count) {
  return {data, ps::DType::f32, {static_cast<std::int64_t>(count)}, device.place()};
}

}  // namespace

Problem::Problem(Context& context)
    : stream_(context.device()),
      stop_(context.stop()),
      count_(context.bytes() / sizeof(float)),
      copies_(copies_of(context.device(), context.bytes())),
      turns_(context.quick() ? 3 : 11),
      in_(context.device(), copies_ * context.bytes()),
      out_(context.device(), copies_ * context.bytes()),
      expected_(context.device(), context.bytes()),
      coefficients_(context.device(), coefficients_for(count_) * sizeof(float)) {
  ladder::check(cudaSetDevice(context.device().index()), "cudaSetDevice");
  const cudaStream_t native = ps::cuda_stream(stream_);
  fill_random(input(0), copies_ * count_, input_seed, native);
  fill_random(coefficients_.view().as<float>(), coefficients_for(count_), coefficients_seed,
              native);
  check_reference();

  copy_seconds_ =
      interleaved_medians(stream_, {memcpy()}, {.turns = turns_, .warm_up = 3, .stop = stop_})
          .front();
  multiply_adds_per_second_ = copy::multiply_adds_per_second(stream_, turns_);
  const double balanced =
      copy_seconds_ * multiply_adds_per_second_ / static_cast<double>(count_) / unrolled;
  balanced_rounds_ = std::max(1, static_cast<int>(std::lround(balanced))) * unrolled;
  tell(context);
}

void Problem::tell(Context& context) const {
  const double bytes = 2.0 * static_cast<double>(context.bytes()) / copy_seconds_;
  context.add_fact({"bytes_per_second",
                    fmt::format("cudaMemcpy of {}: {}", ps::format_bytes(context.bytes()),
                                ps::format_rate(bytes)),
                    bytes});
  context.add_fact(
      {"multiply_adds_per_second",
       fmt::format("multiply-adds alone: {:.2f} T/s", multiply_adds_per_second_ * 1e-12),
       multiply_adds_per_second_});
  for (const Intensity intensity : all_intensities) {
    context.add_fact(
        {fmt::format("rounds_{}", name(intensity)),
         fmt::format("{}: {} multiply-adds an element", name(intensity), rounds(intensity)),
         static_cast<double>(rounds(intensity))});
  }
}

float* Problem::input(std::size_t turn) const {
  return in_.view().as<float>() + turn % copies_ * count_;
}
float* Problem::output(std::size_t turn) const {
  return out_.view().as<float>() + turn % copies_ * count_;
}

Options Problem::options(Formula formula, int rounds, std::size_t turn, std::size_t most) const {
  const ps::Device device = stream_.device();
  const std::size_t count = std::min(count_, most);
  Options options{.in = view(device, input(turn), count),
                  .out = view(device, output(turn), count),
                  .rounds = rounds};
  if (formula == Formula::row) {
    options.coefficients = view(device, coefficients_.view().as<float>(), coefficients_for(count));
  }
  return options;
}

// Plain loads against the host, on a piece that has edges of all kinds.
void Problem::check_reference() {
  const std::size_t some = std::min(count_, group * width * 2 + 77);
  const ps::PinnedBuffer in(stream_.device(), some * sizeof(float)),
      coefficients(stream_.device(), coefficients_for(some) * sizeof(float)),
      out(stream_.device(), some * sizeof(float));
  ps::copy(in.view(), in_.view().sub(0, in.bytes()), stream_);
  ps::copy(coefficients.view(), coefficients_.view().sub(0, coefficients.bytes()), stream_);
  const std::span<const float> host_in(in.view().as<float>(), some),
      host_coefficients(coefficients.view().as<float>(), coefficients_for(some));
  constexpr int rounds = 37;
  for (const Formula formula : {Formula::plain, Formula::row, Formula::stencil}) {
    ps::fill(out_.view().sub(0, out.bytes()), poison, stream_);
    launch_plain(formula,
                 {.in = input(0),
                  .out = output(0),
                  .count = some,
                  .rounds = rounds,
                  .coefficients = coefficients_.view().as<float>()},
                 0, 0, ps::cuda_stream(stream_));
    ps::copy(out.view(), out_.view().sub(0, out.bytes()), stream_);
    stream_.synchronize();
    for (std::size_t i = 0; i < some; ++i) {
      const float got = out.view().as<float>()[i];
      const float wanted = expected(formula, host_in, host_coefficients, rounds, i);
      if (std::bit_cast<std::uint32_t>(got) != std::bit_cast<std::uint32_t>(wanted)) {
        throw std::runtime_error(fmt::format("the reference ({}): element {} is {}, expected {}",
                                             name(formula), i, got, wanted));
      }
    }
  }
}

void Problem::check(const Kernel& kernel, int rounds) {
  const Options options = this->options(kernel.formula, rounds, 0);
  ps::fill(options.out.memory(), poison, stream_);
  enqueue(kernel, options, stream_);
  auto* const wanted = expected_.view().as<float>();
  if (kernel.formula != expected_formula_ || rounds != expected_rounds_) {
    launch_plain(kernel.formula,
                 {.in = input(0),
                  .out = wanted,
                  .count = count_,
                  .rounds = rounds,
                  .coefficients = coefficients_.view().as<float>()},
                 0, 0, ps::cuda_stream(stream_));
    expected_formula_ = kernel.formula;
    expected_rounds_ = rounds;
  }
  const Differences found = differences(output(0), wanted, count_, stream_);
  if (found.count > 0) {
    throw std::runtime_error(
        fmt::format("the kernel '{}' after {} rounds: {} of {} elements are wrong, the first is {}",
                    kernel.label, rounds, found.count, count_, found.first));
  }
}

Enqueue Problem::run(const Kernel& kernel, int rounds) const {
  return [this, kernel, rounds](std::size_t turn) {
    enqueue(kernel, options(kernel.formula, rounds, turn), stream_);
  };
}

Enqueue Problem::memcpy() const {
  return [this](std::size_t turn) {
    const Options options = this->options(Formula::plain, 0, turn);
    ps::copy(options.out.memory(), options.in.memory(), stream_);
  };
}

int Problem::rounds(Intensity intensity) const {
  switch (intensity) {
    case Intensity::copy_bound:
      return 0;
    case Intensity::balanced:
      return balanced_rounds_;
    case Intensity::compute_bound:
      return 4 * balanced_rounds_;
  }
  return 0;
}

double Problem::floor_seconds(Formula formula, int rounds) const {
  const double bytes = 2.0 * static_cast<double>(count_) * sizeof(float);
  const double read =
      formula == Formula::row ? static_cast<double>(coefficients_for(count_)) * sizeof(float) : 0.0;
  return std::max(copy_seconds_ * (bytes + read) / bytes,
                  static_cast<double>(count_) * rounds / multiply_adds_per_second_);
}

std::vector<Row> Problem::rows(Context& context, const std::vector<Kernel>& kernels) {
  std::vector<Row> rows;
  for (const Intensity intensity : all_intensities) {
    const int rounds = this->rounds(intensity);
    std::vector<Enqueue> work;
    std::vector<std::size_t> row_of;  // of each piece of work
    for (const Kernel& kernel : kernels) {
      if (std::ranges::find(kernel.at, intensity) == kernel.at.end()) continue;
      rows.push_back({.label = kernel.label, .work = work_name(kernel.formula, intensity)});
      rows.back().note = why_not(kernel, stream_.device());
      if (!rows.back().note.empty()) continue;
      check(kernel, rounds);
      rows.back().efficiency = floor_seconds(kernel.formula, rounds);  // over the time, below
      rows.back().use = kernel.use();
      row_of.push_back(rows.size() - 1);
      work.push_back(run(kernel, rounds));
      rows.back().number = context.profile(stream_, [&] { work.back()(0); });
    }
    const std::vector<double> seconds =
        interleaved_medians(stream_, work, {.turns = turns_, .warm_up = 1, .stop = stop_});
    for (std::size_t i = 0; i < work.size(); ++i) {
      Row& row = rows[row_of[i]];
      row.seconds = seconds[i];
      row.efficiency = *row.efficiency / row.seconds;
    }
  }
  return rows;
}

}  // namespace ladder::copy
