// The CPU's ways to do a range, each by itself: whatever CPU the tests run on, the plain one too.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "ops/transform/cpu.h"
#include "support/elements.h"

namespace ps::test {
namespace {

using detail::Caching;
using detail::Function;
using detail::TransformWork;

bool same(double a, double b) {
  return std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b);
}

TEST(Elements, AgreeWithTheCompilersOwnFloats) {
  for (const float x : {0.0F, -0.0F, 1.0F, -1.5F, 3.40282347e+38F, 1.17549435e-38F, 1e-45F, 0.1F,
                        INFINITY, -INFINITY}) {
    EXPECT_EQ(encoded(x, DType::f32), std::bit_cast<std::uint32_t>(x)) << x;
    EXPECT_TRUE(same(decoded(std::bit_cast<std::uint32_t>(x), DType::f32), x)) << x;
  }
  for (const double x : {0.1, 1e-40, 3.5e38, 1e-46, 16777217.0, 16777219.0}) {
    EXPECT_EQ(rounded(x, DType::f32), static_cast<float>(x)) << x;
  }
}

class CpuRanges : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    range_ = GetParam() == "avx2" ? detail::transform_avx2() : detail::transform_baseline;
    if (range_ == nullptr) GTEST_SKIP() << "this CPU has no AVX2";
  }

  void run(Function function, std::vector<Elements>& in, Elements& out, Caching caching) const {
    TransformWork work{.function = function,
                       .in_type = in[0].type(),
                       .out_type = out.type(),
                       .inputs = static_cast<unsigned>(in.size()),
                       .out = out.data(),
                       .elements = out.size(),
                       .a = 0.3F,
                       .b = -2.1F};
    for (std::size_t i = 0; i < in.size(); ++i) work.in[i] = in[i].data();
    range_(work, 0, out.size(), caching);
  }

 private:
  detail::CpuRange range_ = nullptr;
};

INSTANTIATE_TEST_SUITE_P(Ways, CpuRanges, testing::Values("baseline", "avx2"),
                         [](const auto& each) { return each.param; });

TEST_P(CpuRanges, WidenEveryNumberOf16Bits) {
  for (const DType type : {DType::f16, DType::bf16}) {
    std::vector<Elements> in(1, Elements(type, 65536));
    for (std::uint32_t i = 0; i < 65536; ++i) in[0].set_bits(i, i);
    Elements out(DType::f32, 65536);
    run(Function::cast, in, out, Caching::keep);
    for (std::uint32_t i = 0; i < 65536; ++i) {
      ASSERT_TRUE(same(out[i], decoded(i, type))) << name(type) << std::hex << i << ": " << out[i];
    }
  }
}

// Every number of the type, the middle to its neighbour, and f32's neighbours of both.
TEST_P(CpuRanges, NarrowToTheNearest) {
  for (const DType type : {DType::f16, DType::bf16}) {
    std::vector<float> from;
    const std::uint32_t top = type == DType::f16 ? 0x7C00 : 0x7F80;
    for (std::uint32_t bits = 0; bits < top; ++bits) {
      const double x = decoded(bits, type), middle = x + spacing(x, type) / 2;
      for (const double center : {x, middle}) {
        const auto f = static_cast<float>(center);
        for (const float each : {f, std::nextafter(f, 0.0F), std::nextafter(f, INFINITY)}) {
          from.insert(from.end(), {each, -each});
        }
      }
    }
    for (const float x : {INFINITY, NAN, 3.40282347e+38F, 1e-45F, 65504.0F, 65520.0F}) {
      from.insert(from.end(), {x, -x});
    }
    from.push_back(std::bit_cast<float>(0x7F800001U));  // a signalling NaN whose bits round away
    std::vector<Elements> in(1, Elements(DType::f32, from.size()));
    for (std::size_t i = 0; i < from.size(); ++i) {
      in[0].set_bits(i, std::bit_cast<std::uint32_t>(from[i]));
    }
    for (const Caching caching : {Caching::keep, Caching::pass}) {
      Elements out(type, from.size());
      run(Function::cast, in, out, caching);
      for (std::size_t i = 0; i < from.size(); ++i) {
        ASSERT_TRUE(same(out[i], rounded(from[i], type)))
            << name(type) << ": " << from[i] << " became " << out[i];
      }
    }
  }
}

// Results do not depend on where an element lies, nor on whether caches are passed by.
TEST_P(CpuRanges, WriteEveryElementAndNoOther) {
  std::mt19937 random(20261115);
  std::normal_distribution<double> normal(0, 3);
  for (const auto& [function, inputs] :
       {std::tuple{Function::cast, 1}, std::tuple{Function::axpby, 2}, std::tuple{Function::add, 4},
        std::tuple{Function::gelu_exact, 1}, std::tuple{Function::gelu_tanh, 1},
        std::tuple{Function::swiglu, 2}}) {
    for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
      const DType out_type = function != Function::cast ? type
                             : type == DType::f32       ? DType::bf16
                                                        : DType::f32;
      constexpr std::size_t most = 70;
      std::vector<Elements> all(static_cast<std::size_t>(inputs), Elements(type, most));
      for (Elements& each : all) {
        for (std::size_t i = 0; i < most; ++i) each.set(i, normal(random));
      }
      Elements wanted(out_type, most);
      run(function, all, wanted, Caching::keep);
      for (const std::size_t count : {0, 1, 7, 8, 15, 16, 17, 31, 32, 33, 69}) {
        for (std::size_t offset = 0; offset < 17; ++offset) {
          for (const Caching caching : {Caching::keep, Caching::pass}) {
            std::vector<Elements> in;
            for (const Elements& each : all) {
              Elements& moved = in.emplace_back(type, count, offset * 3 % 17);
              for (std::size_t i = 0; i < count; ++i) moved.set_bits(i, each.bits(i));
            }
            Elements out(out_type, count, offset);
            run(function, in, out, caching);
            for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(out.bits(i), wanted.bits(i)) << i;
            ASSERT_TRUE(out.margins_untouched()) << name(type) << count << " at " << offset;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace ps::test
