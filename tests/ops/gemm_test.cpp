#include "penstock/ops/gemm.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "support/gemm_random.h"
#include "support/sanitized.h"

namespace ps::test {
namespace {

void run(RandomGemm& call) {
  const Stream stream(Device::cpu());
  gemm(call.options(), stream);
  stream.synchronize();
}

TEST(Gemm, AgreesWithSumsInF64) {
  for (std::uint32_t seed = 1; seed <= random_cases(120); ++seed) {
    RandomGemm call(seed, random_gemm_case(seed, 140, seed % 2 == 0));
    run(call);
    ASSERT_EQ(call.wrong(), "") << "with seed " << seed;
  }
}

TEST(Gemm, EveryNumberOfRowsAndColumnsAroundABlock) {
  std::uint32_t seed = 0;
  for (const std::int64_t m : {1, 2, 31, 32, 33}) {
    for (const std::int64_t n : {1, 2, 63, 64, 65, 129}) {
      for (const std::int64_t k : {1, 2, 7, 127, 128, 129}) {
        RandomGemm call(++seed, {.m = m, .n = n, .k = k, .type = DType::f16});
        run(call);
        ASSERT_EQ(call.wrong(), "") << "with seed " << seed;
      }
    }
  }
}

TEST(Gemm, ALongK) {
  RandomGemm call(1, {.m = 3, .n = 5, .k = 20'001});
  run(call);
  EXPECT_EQ(call.wrong(), "");
}

TEST(Gemm, WithoutKTheResultIsZero) {
  RandomGemm call(1, {.m = 40, .n = 70, .k = 0});
  run(call);
  EXPECT_EQ(call.wrong(), "");
}

TEST(Gemm, WithoutRowsOrColumnsNothingIsWritten) {
  for (const auto& [m, n] : {std::pair{0, 5}, {5, 0}, {0, 0}}) {
    RandomGemm call(1, {.m = m, .n = n, .k = 9});
    run(call);
    EXPECT_EQ(call.wrong(), "");
  }
}

// A NaN reaches the row and the column that it belongs to, and no others.
TEST(Gemm, NanStaysInItsRow) {
  constexpr std::int64_t m = 40, n = 70, k = 33;
  Strided a(DType::bf16, {m, k}), b(DType::bf16, {n, k}), out(DType::bf16, {m, n});
  for (Strided* each : {&a, &b}) {
    for (std::int64_t i = 0; i < each->size(); ++i) {
      each->set_bits(each->index(i), encoded(1, DType::bf16));
    }
  }
  a.set_bits({35, 7}, encoded(NAN, DType::bf16));
  const Stream stream(Device::cpu());
  gemm({.a = a.view(), .b = b.view(), .out = out.view()}, stream);
  stream.synchronize();
  for (std::int64_t i = 0; i < out.size(); ++i) {
    const std::vector<std::int64_t> at = out.index(i);
    const double got = decoded(static_cast<std::uint32_t>(out.bits(at)), DType::bf16);
    EXPECT_TRUE(at[0] == 35 ? std::isnan(got) : got == k) << at[0] << ", " << at[1] << ": " << got;
  }
}

}  // namespace
}  // namespace ps::test
