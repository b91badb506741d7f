// A call of resample for tests to spoil.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/ops/resample.h"

namespace ps::test {

struct Refusal {
  std::string argument, expected, given;
};

// Two sensors of 3 and 5 columns, in all a call that is right. Tests spoil it.
class ResampleErrors : public testing::Test {
 protected:
  static constexpr std::int64_t B = 2, S = 6, N = 9, T = 4;

  static TensorView view(void* data, DType type, std::initializer_list<std::int64_t> shape) {
    return {data, type, shape, Device::cpu().place()};
  }
  static TensorView strided(void* data, DType type, std::vector<std::int64_t> shape,
                            std::vector<std::int64_t> strides) {
    return {data, type, shape, strides, Device::cpu().place()};
  }

  ResampleErrors() {
    for (std::size_t i = 0; i < times.size(); ++i) times[i] = static_cast<double>(i % S);
    for (std::size_t i = 0; i < ragged_times.size(); ++i) ragged_times[i] = static_cast<double>(i);
    for (std::size_t i = 0; i < at.size(); ++i) at[i] = static_cast<double>(i % T);
    options.sensors = {{.values = view(values.data(), DType::f32, {B, S, 3}),
                        .times = view(times.data(), DType::f64, {B, S})},
                       {.values = view(ragged.data(), DType::f32, {N, 5}),
                        .times = view(ragged_times.data(), DType::f64, {N}),
                        .offsets = view(offsets.data(), DType::i32, {B + 1})}};
    options.at = view(at.data(), DType::f64, {B, T});
    options.out = view(out.data(), DType::f32, {B, T, 8});
    options.valid = view(valid.data(), DType::boolean, {B, T, 2});
  }

  static Refusal refused(const std::function<void(const Stream&)>& call,
                         const Device& device = Device::cpu()) {
    const Stream stream(device);
    try {
      call(stream);
      stream.synchronize();
    } catch (const InvalidArgument& error) {
      EXPECT_FALSE(error.expected().empty());
      EXPECT_FALSE(error.given().empty());
      return {error.argument(), error.expected(), error.given()};
    }
    return {};
  }
  Refusal refusal(const Device& device = Device::cpu()) const {
    return refused([&](const Stream& stream) { resample(options, stream); }, device);
  }
  std::string argument() const { return refusal().argument; }

  // The argument that is named when options are spoilt.
  std::string spoilt(const std::function<void(ResampleOptions&)>& spoil) const {
    ResampleOptions bad = options;
    spoil(bad);
    return refused([&](const Stream& stream) { resample(bad, stream); }).argument;
  }

  alignas(64) std::array<float, B * S * 3 + 16> values{};
  alignas(64) std::array<float, N * 5 + 16> ragged{};
  alignas(64) std::array<double, B * S> times{};
  alignas(64) std::array<double, N> ragged_times{};
  std::array<std::int32_t, B + 1> offsets{0, 4, 9};
  std::array<std::int64_t, B> lengths{6, 3};
  alignas(64) std::array<double, B * T> at{};
  alignas(64) std::array<float, B * T * 8 + 16> out{};
  std::array<bool, B * T * 2> valid{};
  ResampleOptions options;
};

}  // namespace ps::test
