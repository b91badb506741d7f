#include "ops/gemm/tunable.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ops/properties.h"
#include "ops/rotation.h"
#include "ops/tunable.h"
#include "penstock/base/units.h"

namespace ps::detail {
namespace {

// Kernels by their place: the estimate of choice.h, which is no kernel but chooses one for every
// size, then the portable one, then gemm_shapes.
constexpr unsigned estimated = 0, portable_kernel = 1, first_shape = 2;

GemmKernel kernel_at(unsigned place, const GemmSize& size, std::size_t multiprocessors) {
  if (place == estimated) return estimated_gemm(size, multiprocessors);
  return place == portable_kernel ? GemmKernel::portable
                                  : gemm_shapes.at(place - first_shape).kernel;
}

// A problem has few rows, or as many tiles of 128 x 256 as a number of waves, one tile per
// multiprocessor each; and a short or a long K.
struct WaveClass {
  std::string_view name;
  double most;   // waves; the last class has no end
  double trial;  // waves of the problem that is measured
};
constexpr std::array wave_classes = {
    WaveClass{"up to a quarter of a wave", 0.25, 0.25}, WaveClass{"up to one wave", 1, 1},
    WaveClass{"up to four waves", 4, 4}, WaveClass{"over four waves", INFINITY, 16}};
struct KClass {
  std::string_view name;
  std::size_t most;
  std::size_t trial;
};
constexpr std::array k_classes = {KClass{"K up to 1024", 1024, 512},
                                  KClass{"K over 1024", SIZE_MAX, 4096}};

constexpr std::size_t tile_rows = 128, tile_columns = 256;

// Products with few rows are limited by reading b. Their class comes after those of waves.
constexpr std::string_view few_rows_name = "up to 128 rows";
constexpr std::size_t few_rows = 128, few_rows_trial = 64;
constexpr std::size_t few_rows_class = wave_classes.size();

std::vector<std::string> problem_names() {
  std::vector<std::string> names;
  const auto add = [&](std::string_view name) {
    for (const KClass& k : k_classes)
      names.push_back(std::string(name) + ", " + std::string(k.name));
  };
  for (const WaveClass& waves : wave_classes) add(waves.name);
  add(few_rows_name);
  return names;
}

std::size_t multiprocessors_of(const Device& device) {
  return static_cast<std::size_t>(properties_of(device).multiprocessors);
}

bool has_sm90(const Device& device) {
  const cuda::Properties& gpu = properties_of(device);
  return gpu.major == 9 && gpu.minor == 0;
}

std::vector<unsigned> candidates(std::size_t, const Device& device) {
  if (device.kind() == DeviceKind::cpu || properties_of(device).major < 8) return {};
  if (!has_sm90(device)) return {portable_kernel};
  std::vector<unsigned> all = {estimated};
  for (unsigned number = 0; number < gemm_shapes.size(); ++number) {
    all.push_back(first_shape + number);
  }
  return all;
}

// About twice as many columns as rows, in whole tiles. With few rows, 64 columns per
// multiprocessor.
GemmSize size_of_trial(std::size_t problem, std::size_t multiprocessors) {
  const std::size_t k = k_classes.at(problem % k_classes.size()).trial;
  if (problem / k_classes.size() == few_rows_class) {
    return {few_rows_trial, 64 * multiprocessors, k};
  }
  const WaveClass& waves = wave_classes.at(problem / k_classes.size());
  const double tiles = waves.trial * static_cast<double>(multiprocessors);
  const auto rows = std::max<std::size_t>(1, static_cast<std::size_t>(std::sqrt(tiles / 2)));
  const auto columns =
      std::max<std::size_t>(1, static_cast<std::size_t>(tiles / static_cast<double>(rows)));
  return {rows * tile_rows, columns * tile_columns, k};
}

// Fills memory with numbers of magnitude 1 to 2: random bits would be infinities and NaN as well,
// and a constant would need less power than real data. Numbers are multiples of 1/16, so that sums
// of up to 2^14 products are exact in f32, and kernels that add in different orders give the same
// bits.
void fill_with_numbers(const MemoryView& memory, const Stream& stream) {
  std::vector<std::uint16_t> numbers(1 * MiB / sizeof(std::uint16_t));
  std::uint32_t random = 1;  // any will do, the same every time
  for (std::uint16_t& number : numbers) {
    random = random * 1664525U + 1013904223U;
    number = static_cast<std::uint16_t>(0x3F80U | (random >> 16 & 0x8078U));  // bf16
  }
  const MemoryView from{reinterpret_cast<std::byte*>(numbers.data()), 1 * MiB, {}};
  for (std::size_t begin = 0; begin < memory.bytes; begin += from.bytes) {
    const std::size_t part = std::min(from.bytes, memory.bytes - begin);
    copy(memory.sub(begin, part), from.sub(0, part), stream, {.allow_pageable = true});
  }
  stream.synchronize();
}

// The size is part of the problem, so `bytes` does not count.
Trial trial(std::size_t problem, const Device& device, std::size_t) {
  const std::size_t multiprocessors = multiprocessors_of(device);
  const GemmSize size = size_of_trial(problem, multiprocessors);
  const std::size_t element = size_of(DType::bf16);
  const std::size_t a = size.m * size.k * element, b = size.n * size.k * element;
  const std::size_t written = size.m * size.n * element;
  const auto memory = std::make_shared<Rotation>(device, a + b + written);
  for (std::size_t set = 0; set < memory->sets(); ++set) {
    fill_with_numbers((*memory)(set).sub(0, a + b), Stream(device));
  }
  GemmWork work{.m = static_cast<std::int64_t>(size.m),
                .n = static_cast<std::int64_t>(size.n),
                .k = static_cast<std::int64_t>(size.k)};
  work.a_row = work.b_row = work.k;
  work.out_row = work.n;
  return {.bytes = a + b + written,
          .enqueue =
              [=](unsigned kernel, std::size_t number, const Stream& stream) {
                GemmWork call = work;
                std::byte* data = (*memory)(number).data;
                call.a = data;
                call.b = data + a;
                call.out = data + a + b;
                gemm_gpu(call, kernel_at(kernel, size, multiprocessors), stream);
              },
          .output = [=](std::size_t number) { return (*memory)(number).sub(a + b, written); }};
}

}  // namespace

GemmSize gemm_size(const GemmWork& work) {
  const auto alignment = [](const void* data, std::int64_t row) {
    return gemm_alignment(reinterpret_cast<std::uintptr_t>(data) |
                          size_of(DType::bf16) * static_cast<std::size_t>(row));
  };
  return {.m = static_cast<std::size_t>(work.m),
          .n = static_cast<std::size_t>(work.n),
          .k = static_cast<std::size_t>(work.k),
          .a_alignment = alignment(work.a, work.a_row),
          .b_alignment = alignment(work.b, work.b_row),
          .out_alignment = alignment(work.out, work.out_row)};
}

std::size_t gemm_problem(const GemmSize& size, std::size_t multiprocessors) {
  const double waves =
      static_cast<double>(ceil_div(size.m, tile_rows) * ceil_div(size.n, tile_columns)) /
      static_cast<double>(multiprocessors);
  const auto wave =
      std::ranges::find_if(wave_classes, [&](const WaveClass& each) { return waves <= each.most; });
  const auto k =
      std::ranges::find_if(k_classes, [&](const KClass& each) { return size.k <= each.most; });
  const std::size_t row =
      size.m <= few_rows ? few_rows_class : static_cast<std::size_t>(wave - wave_classes.begin());
  return row * k_classes.size() + static_cast<std::size_t>(k - k_classes.begin());
}

GemmKernel gemm_kernel(const GemmWork& work, GemmKernel asked, const Device& device) {
  if (asked != GemmKernel::best) return asked;
  if (!has_sm90(device) || !gemm_fits_sm90(work)) return GemmKernel::portable;
  const GemmSize size = gemm_size(work);
  const std::size_t multiprocessors = multiprocessors_of(device);
  const GemmKernel estimate = estimated_gemm(size, multiprocessors);
  const GemmKernel measured =
      kernel_at(chosen_kernel(gemm_tunable(), gemm_problem(size, multiprocessors), device), size,
                multiprocessors);
  // One size of the class was measured. A kernel that suits it may suit this one badly.
  constexpr double most = 1.25;
  const auto time = [&](GemmKernel kernel) {
    return gemm_time(*find_gemm_shape(kernel), size, multiprocessors);
  };
  return time(measured) <= most * time(estimate) ? measured : estimate;
}

const Tunable& gemm_tunable() {
  static const Tunable tunable = [] {
    std::vector<std::string_view> kernels = {"estimated", "portable"};
    for (const GemmShape& shape : gemm_shapes) kernels.push_back(shape.name);
    return Tunable{.name = "gemm",
                   .kernels = std::move(kernels),
                   .problems = problem_names(),
                   .candidates = candidates,
                   .trial = trial};
  }();
  return tunable;
}

}  // namespace ps::detail
