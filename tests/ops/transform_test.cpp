#include "penstock/ops/transform.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/host/event.h"
#include "support/elements.h"
#include "support/fake_machine.h"
#include "support/transform_cases.h"

namespace ps::test {
namespace {

TensorView view(Elements& elements) {
  return {elements.data(),
          elements.type(),
          {static_cast<std::int64_t>(elements.size())},
          Device::cpu().place()};
}

void run(const TransformCase& each, std::vector<Elements>& in, Elements& out) {
  const Stream stream(Device::cpu());
  std::vector<TensorView> views;
  for (Elements& input : in) views.push_back(view(input));
  each.run(views, view(out), TransformKernel::best, stream);
  stream.synchronize();
}

// All elements at both ends, some between.
std::size_t next(std::size_t i, std::size_t count) {
  return i < 1100 || i + 100 >= count ? i + 1 : std::min(i + 37, count - 100);
}

void expect_right(const TransformCase& each, const std::vector<Elements>& in, const Elements& out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    ASSERT_EQ(wrong(each, in, out, i), "") << name(out.type()) << ", " << out.size() << " elements";
  }
  ASSERT_TRUE(out.margins_untouched());
}

class Transform : public testing::TestWithParam<TransformCase> {};

INSTANTIATE_TEST_SUITE_P(Functions, Transform, testing::ValuesIn(transform_cases()),
                         [](const auto& each) { return each.param.name; });

TEST_P(Transform, AnySize) {
  std::mt19937 random(20261115);
  for (const DType type : float_types) {
    for (const std::size_t count : {0, 1, 2, 7, 8, 9, 31, 1023, 1024, 1025, 16383, 16385, 40'001}) {
      std::vector<Elements> in(GetParam().inputs, Elements(type, count));
      for (Elements& input : in) fill_random(input, random);
      Elements out(type, count);
      run(GetParam(), in, out);
      expect_right(GetParam(), in, out);
    }
  }
}

TEST_P(Transform, AnyAlignment) {
  std::mt19937 random(7);
  for (const DType type : float_types) {
    for (int round = 0; round < 10; ++round) {
      const std::size_t count = 1 + random() % 3000;
      std::vector<Elements> in;
      for (unsigned i = 0; i < GetParam().inputs; ++i) {
        fill_random(in.emplace_back(type, count, random() % 33), random);
      }
      Elements out(type, count, random() % 33);
      run(GetParam(), in, out);
      expect_right(GetParam(), in, out);
    }
  }
}

TEST_P(Transform, WorksInPlaceOfAnyInput) {
  std::mt19937 random(8);
  for (const DType type : float_types) {
    for (unsigned which = 0; which < GetParam().inputs; ++which) {
      std::vector<Elements> in(GetParam().inputs, Elements(type, 20'001, 3));
      for (Elements& input : in) fill_random(input, random);
      std::vector<Elements> changed = in;
      const Stream stream(Device::cpu());
      std::vector<TensorView> views;
      for (Elements& input : changed) views.push_back(view(input));
      GetParam().run(views, views[which], TransformKernel::best, stream);
      stream.synchronize();
      expect_right(GetParam(), in, changed[which]);
    }
  }
}

TEST_P(Transform, HasItsLimitsAtTheEdges) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const double edges[] = {NAN,  infinity, -infinity, 0.0,   -0.0, 1e-42, -1e-42,
                          3e38, -3e38,    65504,     -1e-8, 88.7, -88.7, -103.5};
  for (const DType type : float_types) {
    std::vector<Elements> in(GetParam().inputs, Elements(type, std::size(edges)));
    for (std::size_t i = 0; i < std::size(edges); ++i) {
      in[0].set(i, edges[i]);
      for (unsigned other = 1; other < GetParam().inputs; ++other) in[other].set(i, 1);
    }
    Elements out(type, std::size(edges));
    run(GetParam(), in, out);
    for (std::size_t i = 0; i < std::size(edges); ++i) {
      if (!GetParam().same_bits && in[0][i] == -infinity) {
        EXPECT_EQ(out[i], 0) << "gelu and silu go to 0 on the left";
      } else {
        EXPECT_EQ(wrong(GetParam(), in, out, i), "") << name(type);
      }
    }
  }
}

// Larger than a last-level cache together, so that results pass by it.
TEST(TransformCaches, AreNotFilledWithLargeResults) {
  constexpr std::size_t count = 9'000'001;
  std::vector<std::uint16_t> in(count, 0x4000), out(count + 2, 0xA5A5);  // 2
  in.front() = in.back() = 0x4040;                                       // 3
  const auto bf16 = [](std::uint16_t* data) {
    return TensorView(data, DType::bf16, {count}, Device::cpu().place());
  };
  const Stream stream(Device::cpu());
  mul({.x = bf16(in.data()), .y = bf16(in.data()), .out = bf16(out.data() + 1)}, stream);
  stream.synchronize();
  EXPECT_EQ(out[0], 0xA5A5);
  EXPECT_EQ(out[1], 0x4110);
  EXPECT_EQ(std::count(out.begin(), out.end(), 0x4080), static_cast<std::ptrdiff_t>(count) - 2);
  EXPECT_EQ(out[count], 0x4110);
  EXPECT_EQ(out[count + 1], 0xA5A5);
}

// Densely where the functions bend.
TEST(TransformAccuracy, OfF32) {
  constexpr std::size_t count = 200'001;
  for (const TransformCase& each : transform_cases()) {
    if (each.same_bits) continue;
    std::vector<Elements> in(each.inputs, Elements(DType::f32, count));
    for (std::size_t i = 0; i < count; ++i) {
      in[0].set(i, -20 + 40 * static_cast<double>(i) / (count - 1));
      if (each.inputs > 1) in[1].set(i, 1);
    }
    Elements out(DType::f32, count);
    run(each, in, out);
    expect_right(each, in, out);
    double largest = 0;
    for (std::size_t i = 0; i < count; i += 29) {
      const double exact = each.exact({in[0][i], 1});
      if (in[0][i] > -4) largest = std::max(largest, std::abs(out[i] - exact) / std::abs(exact));
    }
    RecordProperty(each.name + "_largest_error_per_billion", static_cast<int>(largest * 1e9));
  }
}

TEST(Cast, BetweenAllTypes) {
  std::mt19937 random(10);
  for (const DType from : float_types) {
    for (const DType to : float_types) {
      for (const std::size_t count : {0, 1, 5, 8, 1025, 40'003}) {
        for (const std::size_t offset : {0, 1, 5}) {
          Elements in(from, count, offset), out(to, count, offset * 3 % 7);
          for (std::size_t i = 0; i < count; ++i) {
            in.set_bits(i, static_cast<std::uint32_t>(random()));  // NaN and infinity among them
          }
          const Stream stream(Device::cpu());
          cast({.in = view(in), .out = view(out)}, stream);
          stream.synchronize();
          for (std::size_t i = 0; i < count; i = next(i, count)) {
            if (from == to) {
              ASSERT_EQ(in.bits(i), out.bits(i)) << "a copy, bit by bit";
              continue;
            }
            const double wanted = rounded(in[i], to);
            ASSERT_TRUE(std::isnan(wanted) ? std::isnan(out[i]) : out[i] == wanted)
                << name(from) << " to " << name(to) << ": " << in[i] << " became " << out[i];
          }
          ASSERT_TRUE(out.margins_untouched());
        }
      }
    }
  }
}

TEST(Cast, InPlaceBetweenTypesOfOneSize) {
  Elements data(DType::f16, 20'000);
  for (std::size_t i = 0; i < data.size(); ++i) data.set(i, static_cast<double>(i % 256));
  const Stream stream(Device::cpu());
  const TensorView half = view(data);
  const TensorView brain(data.data(), DType::bf16, {20'000}, Device::cpu().place());
  cast({.in = half, .out = brain}, stream);
  stream.synchronize();
  for (std::size_t i = 0; i < data.size(); ++i) {
    ASSERT_EQ(decoded(data.bits(i), DType::bf16), static_cast<double>(i % 256));
  }
}

TEST(TransformOrder, RunsInStreamOrderAndDoesNotBlock) {
  const Device cpu = Device::cpu();
  const Stream first(cpu), second(cpu);
  Elements data(DType::f32, 100);
  const Event written(cpu);
  first.call([&] {
    for (std::size_t i = 0; i < data.size(); ++i) data.set(i, 1);
  });
  first.record(written);
  second.wait(written);
  scale({.in = view(data), .out = view(data), .factor = 3}, second);
  second.synchronize();
  for (std::size_t i = 0; i < data.size(); ++i) ASSERT_EQ(data[i], 3);
}

// The argument that the error names, or "" when nothing was thrown.
std::string refused(const std::function<void(const Stream&)>& call,
                    const Device& device = Device::cpu()) {
  const Stream stream(device);
  try {
    call(stream);
    stream.synchronize();
  } catch (const InvalidArgument& error) {
    EXPECT_FALSE(error.expected().empty());
    EXPECT_FALSE(error.given().empty());
    return error.argument();
  }
  return "";
}

class TransformErrors : public testing::Test {
 protected:
  static TensorView floats(float* data, std::int64_t count) {
    return {data, DType::f32, {count}, Device::cpu().place()};
  }

  alignas(64) std::array<float, 64> a{}, b{}, c{};
  TensorView x = floats(a.data(), 16), y = floats(b.data(), 16), out = floats(c.data(), 16);
};

TEST_F(TransformErrors, NoneWhereAllIsWell) {
  EXPECT_EQ(refused([&](const Stream& s) { axpby({.x = x, .y = y, .out = out}, s); }), "");
  EXPECT_EQ(refused([&](const Stream& s) { axpby({.x = x, .y = x, .out = x}, s); }), "");
  EXPECT_EQ(refused([&](const Stream& s) {
              const TensorView empty(nullptr, DType::f16, {0, 7}, Device::cpu().place());
              mul({.x = empty, .y = empty, .out = empty}, s);
            }),
            "");
}

TEST_F(TransformErrors, NameTheArgumentOfTheWrongType) {
  const TensorView wrong_type(b.data(), DType::i32, {16}, Device::cpu().place());
  const TensorView half(b.data(), DType::f16, {16}, Device::cpu().place());
  EXPECT_EQ(refused([&](const Stream& s) { cast({.in = wrong_type, .out = out}, s); }), "in");
  EXPECT_EQ(refused([&](const Stream& s) { cast({.in = x, .out = wrong_type}, s); }), "out");
  EXPECT_EQ(refused([&](const Stream& s) { scale({.in = wrong_type, .out = out}, s); }), "in");
  EXPECT_EQ(refused([&](const Stream& s) { gelu({.in = x, .out = half}, s); }), "out");
  EXPECT_EQ(refused([&](const Stream& s) { mul({.x = x, .y = half, .out = out}, s); }), "y");
  EXPECT_EQ(refused([&](const Stream& s) { swiglu({.gate = x, .up = half, .out = out}, s); }),
            "up");
  EXPECT_EQ(refused([&](const Stream& s) { add({.in = {x, y, half}, .out = out}, s); }), "in[2]");
}

TEST_F(TransformErrors, NameTheArgumentOfTheWrongShape) {
  const TensorView shorter = floats(b.data(), 15);
  const TensorView square(b.data(), DType::f32, {4, 4}, Device::cpu().place());
  EXPECT_EQ(refused([&](const Stream& s) { mul({.x = x, .y = shorter, .out = out}, s); }), "y");
  EXPECT_EQ(refused([&](const Stream& s) { mul({.x = x, .y = square, .out = out}, s); }), "y");
  EXPECT_EQ(refused([&](const Stream& s) { scale({.in = x, .out = shorter}, s); }), "out");
  EXPECT_EQ(refused([&](const Stream& s) { add({.in = {x}, .out = out}, s); }), "in");
  EXPECT_EQ(refused([&](const Stream& s) { add({.in = {x, x, x, x, x}, .out = out}, s); }), "in");
  EXPECT_EQ(refused([&](const Stream& s) { add({.out = out}, s); }), "in");
  const std::array<std::int64_t, 1> shape{16}, strides{2};
  const TensorView strided(b.data(), DType::f32, shape, strides, Device::cpu().place());
  EXPECT_EQ(refused([&](const Stream& s) { scale({.in = strided, .out = out}, s); }), "in");
  EXPECT_EQ(refused([&](const Stream& s) { scale({.in = x, .out = strided}, s); }), "out");
}

TEST_F(TransformErrors, NameTheArgumentInTheWrongPlace) {
  const TensorView elsewhere(b.data(), DType::f32, {16}, {Memory::device, 0});
  EXPECT_EQ(refused([&](const Stream& s) { mul({.x = x, .y = elsewhere, .out = out}, s); }), "y");
  auto* odd = reinterpret_cast<float*>(reinterpret_cast<char*>(b.data()) + 2);
  EXPECT_EQ(refused([&](const Stream& s) { scale({.in = floats(odd, 16), .out = out}, s); }), "in");
  EXPECT_EQ(refused([&](const Stream& s) { scale({.in = x, .out = floats(odd, 16)}, s); }), "out");
}

TEST_F(TransformErrors, RefusePartialOverlap) {
  EXPECT_EQ(refused([&](const Stream& s) { scale({.in = x, .out = floats(a.data() + 1, 16)}, s); }),
            "out");
  EXPECT_EQ(
      refused([&](const Stream& s) { mul({.x = x, .y = y, .out = floats(b.data() + 15, 16)}, s); }),
      "out");
  // The same beginning, but elements of another size: a partial overlap too.
  const TensorView half(a.data(), DType::f16, {16}, Device::cpu().place());
  EXPECT_EQ(refused([&](const Stream& s) { cast({.in = x, .out = half}, s); }), "out");
  EXPECT_EQ(
      refused([&](const Stream& s) { scale({.in = x, .out = floats(a.data() + 16, 16)}, s); }), "");
}

TEST_F(TransformErrors, NameOptionsOutOfRange) {
  EXPECT_EQ(refused([&](const Stream& s) {
              gelu({.in = x, .out = out, .form = static_cast<Gelu>(7)}, s);
            }),
            "form");
  EXPECT_EQ(refused([&](const Stream& s) {
              scale({.in = x, .out = out, .kernel = static_cast<TransformKernel>(9)}, s);
            }),
            "kernel");
}

TEST_F(TransformErrors, SayWhatIsWrong) {
  try {
    mul({.x = x, .y = floats(b.data(), 15), .out = out}, Stream(Device::cpu()));
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.expected(), "the shape of x, f32[16] on cpu");
    EXPECT_EQ(error.given(), "f32[15] on cpu");
  }
}

// On a GPU, a fake one: what is refused before anything is launched.
TEST_F(TransformErrors, OfAGpu) {
  FakeMachine machine;
  const Device gpu = machine.gpu();
  EXPECT_EQ(refused([&](const Stream& s) { scale({.in = x, .out = out}, s); }, gpu), "in");
  const TensorView there(a.data(), DType::f32, {16}, gpu.place());
  EXPECT_EQ(refused([&](const Stream& s) { scale({.in = there, .out = out}, s); }, gpu), "out");
  const TensorView pinned(a.data(), DType::f32, {16}, {Memory::pinned});
  EXPECT_EQ(refused([&](const Stream& s) { scale({.in = pinned, .out = there}, s); }, gpu), "in");
}

TEST_F(TransformErrors, OfAGpuThatIsTooOld) {
  for (const auto& [major, minor, kernel, wanted] :
       {std::tuple{7, 5, TransformKernel::best, "8.0 or later, found 7.5"},
        std::tuple{8, 9, TransformKernel::sm90, "9.0 for kernel sm90, found 8.9"},
        std::tuple{10, 0, TransformKernel::sm90, "9.0 for kernel sm90, found 10.0"}}) {
    FakeMachine machine({.adjust = [major = major, minor = minor](int, cuda::Properties& gpu) {
      gpu.major = major;
      gpu.minor = minor;
    }});
    const TensorView there(a.data(), DType::f32, {16}, machine.gpu().place());
    try {
      scale({.in = there, .out = there, .kernel = kernel}, Stream(machine.gpu()));
      FAIL() << wanted;
    } catch (const Unsupported& error) {
      EXPECT_NE(std::string(error.what()).find(wanted), std::string::npos) << error.what();
    }
  }
}

TEST(TransformPlaces, EveryHostMemoryOnTheCpu) {
  std::array<float, 8> a{}, b{};
  const TensorView host(a.data(), DType::f32, {8}, {Memory::host});
  const TensorView pinned(b.data(), DType::f32, {8}, {Memory::pinned});
  EXPECT_EQ(refused([&](const Stream& s) { scale({.in = host, .out = pinned}, s); }), "");
}

}  // namespace
}  // namespace ps::test
