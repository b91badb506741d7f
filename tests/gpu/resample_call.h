// What the tests of resample on a GPU share: calls of real shapes.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "gpu/copies.h"
#include "gpu/gpu_test.h"
#include "penstock/ops/resample.h"
#include "support/resample_random.h"

namespace ps::test {

inline constexpr std::array kernels{ResampleKernel::best, ResampleKernel::deep,
                                    ResampleKernel::wide, ResampleKernel::brief};

class ResampleGpu : public GpuTest {};

// Longer episodes, the shapes of real calls: against the CPU, bit by bit.
struct Shape {
  std::int64_t episodes, samples, targets, columns;
  DType type, time_type;
  bool even, ragged;
};

class ResampleCall {
 public:
  explicit ResampleCall(const Shape& shape, std::uint32_t seed) : shape_(shape), random_(seed) {
    const std::int64_t b = shape.episodes, s = shape.samples;
    if (shape.ragged) {
      offsets_ = Strided(DType::i64, {b + 1});
      std::int64_t row = 0;
      for (std::int64_t i = 0; i <= b; ++i) {
        offsets_.set_bits({i}, static_cast<std::uint64_t>(row));
        row += static_cast<std::int64_t>(random_() % static_cast<std::uint32_t>(s));
      }
      const auto rows = static_cast<std::int64_t>(offsets_.bits({b}));
      values_ = Strided(shape.type, {rows, shape.columns});
      times_ = Strided(shape.time_type, {rows});
      for (std::int64_t i = 0; i < b; ++i) {
        set_times({}, static_cast<std::int64_t>(offsets_.bits({i})),
                  static_cast<std::int64_t>(offsets_.bits({i + 1})));
      }
    } else {
      values_ = Strided(shape.type, {b, s, shape.columns});
      times_ = Strided(shape.time_type, {b, s});
      for (std::int64_t i = 0; i < b; ++i) set_times({i}, 0, s);
    }
    for (std::int64_t i = 0; i < values_.size(); ++i) {
      const double value = number() * 4 - 2;
      values_.set_bits(values_.index(i), is_floating(shape.type)
                                             ? bits_of_number(value, shape.type)
                                             : static_cast<std::uint64_t>(random_()));
    }
    at_ = Strided(shape.time_type, {b, shape.targets});
    for (std::int64_t i = 0; i < at_.size(); ++i) {
      const double place =
          shape.even ? static_cast<double>(i % shape.targets) / static_cast<double>(shape.targets)
                     : number() * 1.1 - 0.05;
      at_.set_bits(at_.index(i), time(place));
    }
    out_ = Strided(shape.type, {b, shape.targets, shape.columns});
    valid_ = Strided(DType::boolean, {b, shape.targets});
  }

  template <class Place>
  ResampleOptions options(const Place& place, Interpolation mode, Outside outside) {
    Sensor sensor{.values = place(values_), .times = place(times_), .mode = mode};
    if (shape_.ragged) sensor.offsets = place(offsets_);
    return {.sensors = {sensor},
            .at = place(at_),
            .out = place(out_),
            .valid = place(valid_),
            .outside = outside,
            .fill = is_floating(shape_.type) ? NAN : 7};
  }
  template <class Place>
  ResampleGradientOptions gradient(const Place& place, Outside outside) {
    ResampleGradientOptions options{.gradient = place(out_),
                                    .times = place(times_),
                                    .at = place(at_),
                                    .out = place(values_),
                                    .outside = outside};
    if (shape_.ragged) options.offsets = place(offsets_);
    return options;
  }
  Strided& out() { return out_; }
  Strided& values() { return values_; }
  Strided& valid() { return valid_; }

 private:
  double number() { return static_cast<double>(random_()) / 4294967296.0; }
  std::uint64_t time(double share) const {
    if (shape_.time_type == DType::i64) {
      return static_cast<std::uint64_t>(1'700'000'000'000'000'000 +
                                        static_cast<std::int64_t>(share * 1e10));
    }
    return bits_of_number(share, shape_.time_type);
  }
  void set_times(std::vector<std::int64_t> at, std::int64_t begin, std::int64_t end) {
    std::vector<double> shares;
    for (std::int64_t i = begin; i < end; ++i) {
      shares.push_back(shape_.even ? (static_cast<double>(i - begin) + 0.2 * number()) /
                                         static_cast<double>(end - begin)
                                   : number());
    }
    std::ranges::sort(shares);
    at.push_back(0);
    for (std::int64_t i = begin; i < end; ++i) {
      at.back() = i;
      times_.set_bits(at, time(shares[static_cast<std::size_t>(i - begin)]));
    }
  }

  Shape shape_;
  std::mt19937 random_;
  Strided values_, times_, offsets_, at_, out_, valid_;
};

inline const Shape shapes[] = {
    {3, 500, 256, 256, DType::bf16, DType::f32, true, false},
    {3, 500, 256, 256, DType::bf16, DType::f32, false, false},
    {2, 4096, 1024, 33, DType::f16, DType::f64, false, false},
    {5, 1000, 500, 14, DType::f32, DType::i64, true, false},
    {5, 300, 777, 7, DType::f64, DType::f32, false, true},
    {7, 900, 256, 64, DType::f32, DType::f32, false, true},
    {2, 100, 50, 3, DType::u8, DType::i64, false, false},
    {1, 20000, 3000, 8, DType::bf16, DType::f64, false, false},
    {130, 3, 9, 1, DType::i64, DType::f32, false, false},
    {2, 40, 5000, 5, DType::f32, DType::f32, false, false},  // many targets to a sample
    // Enough for blocks of many targets, with rows of 32 vectors, which threads stay in for several
    // rounds; of 33, and of more than there are threads, which they do not.
    {64, 100, 256, 256, DType::bf16, DType::f32, false, false},
    {50, 100, 256, 264, DType::bf16, DType::f32, true, false},
    {4, 120, 90, 800, DType::f32, DType::f64, false, true},
};

// Few and short ones, which have a kernel of their own.
inline const Shape short_shapes[] = {
    {32, 50, 32, 16, DType::bf16, DType::f32, true, false},
    {7, 99, 33, 8, DType::f32, DType::f64, false, false},
    {3, 252, 70, 16, DType::f16, DType::i64, false, false},
    {5, 40, 30, 24, DType::bf16, DType::f32, false, false},  // three vectors
    {2, 8, 11, 256, DType::f32, DType::f32, false, false},   // all threads for a row
    {4, 1, 6, 2, DType::f64, DType::f64, false, false},
    {9, 60, 20, 32, DType::u8, DType::i64, false, false},
};

}  // namespace ps::test
