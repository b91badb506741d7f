#include "ops/resample/tunable.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "ops/properties.h"
#include "ops/resample/brief.h"
#include "ops/rotation.h"
#include "ops/tunable.h"
#include "penstock/base/checked.h"
#include "penstock/base/units.h"

namespace ps::detail {
namespace {

constexpr std::array resample_kernels = {ResampleKernel::deep, ResampleKernel::wide,
                                         ResampleKernel::brief};
constexpr unsigned deep_kernel = 0, wide_kernel = 1, brief_kernel = 2;  // places there

// A problem has rows of at most so many bytes and results of at most so many in all, and more than
// the one before; the last of each have no end. What is computed in f64 takes more registers.
constexpr std::array<std::size_t, 6> row_limits = {32, 64, 128, 256, 512, 1024};
constexpr std::array<std::size_t, 2> result_limits = {4 * MiB, 32 * MiB};
constexpr std::size_t row_classes = row_limits.size() + 1;
constexpr std::size_t result_classes = result_limits.size() + 1;
constexpr std::array types = {DType::bf16, DType::f32};
// One more are those that is_brief() tells.
constexpr std::size_t brief_problem = row_classes * result_classes * types.size();

struct Problem {
  std::size_t row, result, type;  // classes; the last a place in `types`
};
Problem problem_of(std::size_t number) {
  return {number / types.size() / result_classes, number / types.size() % result_classes,
          number % types.size()};
}
std::size_t number_of(const Problem& problem) {
  return (problem.row * result_classes + problem.result) * types.size() + problem.type;
}

template <std::size_t count>
std::size_t class_of(const std::array<std::size_t, count>& limits, std::size_t bytes) {
  return static_cast<std::size_t>(std::ranges::lower_bound(limits, bytes) - limits.begin());
}

// One of a class; of those without an end, twice its beginning.
template <std::size_t count>
std::size_t example_of(const std::array<std::size_t, count>& limits, std::size_t place) {
  return place < count ? limits.at(place) : 2 * limits.back();
}

std::vector<std::string> resample_problem_names() {
  std::vector<std::string> names;
  for (std::size_t number = 0; number < brief_problem; ++number) {
    const auto [row, result, type] = problem_of(number);
    const bool longer = row == row_limits.size(), more = result == result_limits.size();
    names.push_back(fmt::format(
        "{}, rows {} {} bytes, results {} {} MiB", type == 0 ? "16 bits" : "f32 and f64",
        longer ? "over" : "up to", longer ? row_limits.back() : row_limits.at(row),
        more ? "over" : "up to", (more ? result_limits.back() : result_limits.at(result)) / MiB));
  }
  names.emplace_back("few and short episodes");
  return names;
}

// All make the same formula of the same samples, and differ in how these are found and moved. The
// first is the built-in choice, as `penstock tune` found it on an H200.
std::vector<unsigned> resample_candidates(std::size_t problem, const Device& device) {
  if (device.kind() == DeviceKind::cpu) return {};
  const cuda::Properties& gpu = properties_of(device);
  if (gpu.major < 8) return {};
  if (problem == brief_problem) return {brief_kernel, wide_kernel};
  const bool longer = problem_of(problem).row >= 2;
  if (longer) return {deep_kernel, wide_kernel};
  return {wide_kernel, deep_kernel};
}

// Samples at a fixed rate with a tenth of jitter, half as many wanted at even times.
std::vector<float> example_times(std::int64_t episodes, std::int64_t samples,
                                 std::int64_t targets) {
  std::vector<float> times;
  std::uint32_t random = 1;  // any will do, the same every time
  for (std::int64_t i = 0; i < episodes * samples; ++i) {
    random = random * 1664525U + 1013904223U;
    const double jitter = 0.2 * (static_cast<double>(random) / 4294967296.0 - 0.5);
    times.push_back(static_cast<float>((static_cast<double>(i % samples) + jitter) /
                                       static_cast<double>(samples)));
  }
  for (std::int64_t i = 0; i < episodes * targets; ++i) {
    times.push_back((static_cast<float>(i % targets) + 0.5F) / static_cast<float>(targets));
  }
  return times;
}

struct Example {
  std::int64_t episodes, samples, targets;
  std::size_t row;  // bytes
  DType type;
};
Example example_of(std::size_t problem, std::size_t bytes) {
  if (problem == brief_problem) return {32, 50, 32, 32, DType::bf16};
  constexpr std::int64_t samples = 512, targets = 256;
  const auto [row_class, result_class, type] = problem_of(problem);
  const std::size_t row = example_of(row_limits, row_class);
  const std::size_t results = result_class < result_limits.size()
                                  ? result_limits.at(result_class)
                                  : std::max(bytes / 3, 2 * result_limits.back());
  const std::size_t episodes = ceil_div(results, static_cast<std::size_t>(targets) * row);
  return {static_cast<std::int64_t>(episodes), samples, targets, row, types.at(type)};
}

Trial resample_trial(std::size_t problem, const Device& device, std::size_t bytes) {
  const auto [episodes, samples, targets, row, type] = example_of(problem, bytes);
  const std::vector<float> times = example_times(episodes, samples, targets);
  const std::size_t read = static_cast<std::size_t>(episodes * samples) * row;
  const std::size_t written = static_cast<std::size_t>(episodes * targets) * row;
  const std::size_t of_times = times.size() * sizeof(float);
  const std::size_t targets_begin =
      read + written + static_cast<std::size_t>(episodes * samples) * sizeof(float);
  const auto memory = std::make_shared<Rotation>(device, read + written + of_times);
  const Stream stream(device);
  for (std::size_t set = 0; set < memory->sets(); ++set) {
    fill((*memory)(set).sub(0, read), 1, stream);  // random bits are no numbers of use
    const MemoryView from{
        reinterpret_cast<std::byte*>(const_cast<float*>(times.data())), of_times, {}};
    copy((*memory)(set).sub(read + written, of_times), from, stream, {.allow_pageable = true});
  }
  stream.synchronize();

  ResampleWork work{
      .type = type, .episodes = episodes, .targets = targets, .sensors = 1, .segments = 1};
  const auto columns = static_cast<std::int64_t>(row / size_of(type));
  work.sensor[0] = {.value_episode = samples * columns,
                    .value_sample = columns,
                    .time_episode = samples,
                    .samples = samples};
  work.segment[0].count = columns;
  work.at_episode = targets;
  work.out_episode = targets * columns;
  work.out_target = columns;
  return {.bytes = read + written + of_times,
          .enqueue =
              [=](unsigned kernel, std::size_t number, const Stream& on) {
                ResampleWork call = work;
                std::byte* data = (*memory)(number).data;
                call.sensor[0].values = data;
                call.out = data + read;
                call.sensor[0].times = data + read + written;
                call.at = data + targets_begin;
                call.kernel = resample_kernels.at(kernel);
                resample_gpu(call, on);
              },
          .output = [=](std::size_t number) { return (*memory)(number).sub(read, written); }};
}

// Of a call.
std::size_t resample_problem(const ResampleWork& work, const Device& device) {
  if (resampling::is_brief(work, properties_of(device).multiprocessors)) return brief_problem;
  std::int64_t columns = 0;
  for (unsigned i = 0; i < work.segments; ++i) columns += work.segment[i].count;
  const std::size_t row = static_cast<std::size_t>(columns) * size_of(work.type);
  const auto targets = static_cast<std::size_t>(work.episodes * work.targets);
  return number_of({.row = class_of(row_limits, row),
                    .result = class_of(result_limits, targets * row),
                    .type = size_of(work.type) > 2 ? std::size_t{1} : std::size_t{0}});
}

}  // namespace

ResampleKernel resample_kernel(const ResampleWork& work, const Device& device) {
  if (work.kernel != ResampleKernel::best) return work.kernel;
  return resample_kernels.at(
      chosen_kernel(resample_tunable(), resample_problem(work, device), device));
}

const Tunable& resample_tunable() {
  static const Tunable tunable{.name = "resample",
                               .kernels = {"deep", "wide", "brief"},
                               .problems = resample_problem_names(),
                               .candidates = resample_candidates,
                               .trial = resample_trial};
  return tunable;
}

}  // namespace ps::detail
