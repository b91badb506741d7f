#include "penstock/ops/iterate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/host/event.h"

namespace {

constexpr std::uint32_t poison = 0xFFC0DEADU;  // a NaN that no rounds produce

std::vector<float> random_floats(std::size_t count) {
  std::mt19937 generator(20240711);
  std::uniform_real_distribution<float> uniform(-4.0F, 4.0F);
  std::vector<float> values(count);
  for (float& value : values) value = uniform(generator);
  return values;
}

ps::TensorView view(float* data, std::size_t count) {
  return {data, ps::DType::f32, {static_cast<std::int64_t>(count)}, ps::Device::cpu().place()};
}

// By bits: NaN equals the same NaN, and nothing is rounded away.
void expect_iterated(const float* out, const std::vector<float>& in, int rounds) {
  for (std::size_t i = 0; i < in.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(out[i]),
              std::bit_cast<std::uint32_t>(ps::iterated(in[i], rounds)))
        << "element " << i << " of " << in.size() << ", " << rounds << " rounds";
  }
}

// The argument that the error names, or "" when nothing was thrown.
std::string refused(const ps::IterateOptions& options) {
  const ps::Stream stream(ps::Device::cpu());
  try {
    ps::iterate(options, stream);
    stream.synchronize();  // the caller's memory goes away next
  } catch (const ps::InvalidArgument& error) {
    EXPECT_FALSE(error.expected().empty());
    EXPECT_FALSE(error.given().empty());
    return error.argument();
  }
  return "";
}

class IterateSizes : public testing::TestWithParam<std::size_t> {};

TEST_P(IterateSizes, WritesEveryElementAndNoOther) {
  const std::size_t count = GetParam();
  const ps::Stream stream(ps::Device::cpu());
  std::vector<float> in = random_floats(count);
  for (const int rounds : {0, 1, 7, 100}) {
    // One element before and two after must stay untouched.
    std::vector<float> out(count + 3, std::bit_cast<float>(poison));
    ps::iterate(
        {.in = view(in.data(), count), .out = view(out.data() + 1, count), .rounds = rounds},
        stream);
    stream.synchronize();
    expect_iterated(out.data() + 1, in, rounds);
    for (const std::size_t outside : {std::size_t{0}, count + 1, count + 2}) {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(out[outside]), poison) << "element " << outside;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, IterateSizes,
                         testing::Values(0, 1, 3, 15, 63, 64, 65, 127, 128, 129, 4096, 4097));

TEST(Iterate, WorksInPlace) {
  const ps::Stream stream(ps::Device::cpu());
  const std::vector<float> in = random_floats(4097);
  std::vector<float> data = in;
  ps::iterate(
      {.in = view(data.data(), data.size()), .out = view(data.data(), data.size()), .rounds = 13},
      stream);
  stream.synchronize();
  expect_iterated(data.data(), in, 13);
}

TEST(Iterate, TakesAnyFloatAddress) {
  const ps::Stream stream(ps::Device::cpu());
  const std::vector<float> in = random_floats(1001);
  for (std::size_t in_offset = 0; in_offset < 4; ++in_offset) {
    for (std::size_t out_offset = 0; out_offset < 4; ++out_offset) {
      std::vector<float> source(in.size() + 4), out(in.size() + 4, std::bit_cast<float>(poison));
      std::copy(in.begin(), in.end(), source.begin() + static_cast<std::ptrdiff_t>(in_offset));
      ps::iterate({.in = view(source.data() + in_offset, in.size()),
                   .out = view(out.data() + out_offset, in.size()),
                   .rounds = 3},
                  stream);
      stream.synchronize();
      expect_iterated(out.data() + out_offset, in, 3);
    }
  }
}

TEST(Iterate, KeepsSpecialValuesAsTheReferenceDoes) {
  using Limits = std::numeric_limits<float>;
  const ps::Stream stream(ps::Device::cpu());
  const std::array<float, 6> special{Limits::quiet_NaN(),  Limits::infinity(), -Limits::infinity(),
                                     Limits::denorm_min(), Limits::max(),      -0.0F};
  std::vector<float> in(special.size() * 64);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = special[i % special.size()];
  std::vector<float> out(in.size(), 0.0F);
  ps::iterate({.in = view(in.data(), in.size()), .out = view(out.data(), out.size()), .rounds = 2},
              stream);
  stream.synchronize();
  for (std::size_t i = 0; i < in.size(); ++i) {
    const float wanted = ps::iterated(in[i], 2);
    EXPECT_TRUE(std::isnan(wanted) ? std::isnan(out[i]) : out[i] == wanted) << i << ": " << in[i];
  }
}

TEST(Iterate, RunsInStreamOrderAndDoesNotBlock) {
  const ps::Device cpu = ps::Device::cpu();
  const ps::Stream first(cpu), second(cpu);
  const std::vector<float> in = random_floats(100);
  std::vector<float> data(in.size(), std::bit_cast<float>(poison));
  const ps::Event written(cpu);
  // The kernel on `second` is enqueued before its input exists.
  first.call([&] { data = in; });
  first.record(written);
  second.wait(written);
  ps::iterate(
      {.in = view(data.data(), in.size()), .out = view(data.data(), in.size()), .rounds = 5},
      second);
  second.synchronize();
  expect_iterated(data.data(), in, 5);
}

TEST(Iterated, RoundsOnceARound) {
  EXPECT_EQ(ps::iterated(3.5F, 0), 3.5F);
  EXPECT_EQ(ps::iterated(1.0F, 1000), 1.0F);  // the fixed point
  // Exact in double, so rounding it once is what a fused multiply-add gives.
  const float x = 0.1F;
  const double exact = static_cast<double>(ps::iterate_scale) * x + ps::iterate_shift;
  EXPECT_EQ(ps::iterated(x, 1), static_cast<float>(exact));
}

TEST(IterateErrors, NameTheArgument) {
  std::array<float, 16> a{}, b{};
  const ps::TensorView in = view(a.data(), 8), out = view(b.data(), 8);
  EXPECT_EQ(refused({.in = in, .out = out}), "");

  const ps::TensorView wrong_type(a.data(), ps::DType::i32, {8}, ps::Device::cpu().place());
  EXPECT_EQ(refused({.in = wrong_type, .out = out}), "in");
  EXPECT_EQ(refused({.in = in, .out = wrong_type}), "out");

  EXPECT_EQ(refused({.in = in, .out = view(b.data(), 7)}), "out");
  EXPECT_EQ(refused({.in = in, .out = ps::TensorView()}), "out");

  const std::array<std::int64_t, 1> shape{8}, strides{2};
  const ps::TensorView strided(a.data(), ps::DType::f32, shape, strides, {});
  EXPECT_EQ(refused({.in = strided, .out = out}), "in");

  const ps::TensorView elsewhere(b.data(), ps::DType::f32, {8}, {ps::Memory::device, 0});
  EXPECT_EQ(refused({.in = in, .out = elsewhere}), "out");
  EXPECT_EQ(refused({.in = elsewhere, .out = out}), "in");

  EXPECT_EQ(refused({.in = in, .out = view(a.data() + 1, 8)}), "out");
  auto* odd = reinterpret_cast<float*>(reinterpret_cast<char*>(b.data()) + 1);
  EXPECT_EQ(refused({.in = in, .out = view(odd, 8)}), "out");
  EXPECT_EQ(refused({.in = in, .out = out, .rounds = -1}), "rounds");
  EXPECT_EQ(refused({.in = in, .out = out, .blocks = -1}), "blocks");
}

TEST(IterateErrors, AcceptEveryHostMemoryOnTheCpu) {
  std::array<float, 8> a{}, b{};
  const ps::TensorView host(a.data(), ps::DType::f32, {8}, {ps::Memory::host});
  const ps::TensorView pinned(b.data(), ps::DType::f32, {2, 4}, {ps::Memory::pinned});
  EXPECT_EQ(refused({.in = host, .out = pinned}), "");
}

}  // namespace
