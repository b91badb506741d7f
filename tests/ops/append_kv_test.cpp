#include "penstock/ops/append_kv.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "ops/append_kv/cpu.h"
#include "support/append_call.h"
#include "support/sanitized.h"

namespace ps::test {
namespace {

void run(AppendCall& call, bool check = false) {
  const Stream stream(Device::cpu());
  call.expect();
  AppendKVOptions options = call.options();
  options.check = check;
  append_kv(options, stream);
  stream.synchronize();
}

TEST(AppendKV, IsTheFormulaByteForByte) {
  for (std::uint32_t seed = 1; seed <= random_cases(1500); ++seed) {
    AppendCall call(seed, random_append(seed));
    run(call);
    ASSERT_EQ(call.wrong(), "") << "with seed " << seed;
  }
}

TEST(AppendKV, ManyRowsOnSeveralThreads) {
  AppendCall call(1, {.sequences = 3,
                      .each = 300,
                      .capacity = 1000,
                      .heads_k = 4,
                      .heads_q = 8,
                      .dim = 128,
                      .dim_v = 64,
                      .rotated = 128,
                      .lengths = {0, 17, 650},
                      .table_rows = 1000,
                      .advance = true});
  run(call, true);
  EXPECT_EQ(call.wrong(), "");
}

// Angles of 0 and a quarter of a turn, whose results are obvious.
TEST(AppendKV, RotatesThePairsOfBothConventions) {
  const auto rotated = [](RotaryPairs pairs) {
    std::vector<float> k{1, 2, 3, 4, 5}, v{6}, k_cache(5), v_cache(1), cos{1, 0}, sin{0, 1};
    const Stream stream(Device::cpu());
    append_kv({.k = TensorView(k.data(), DType::f32, {1, 1, 1, 5}),
               .v = TensorView(v.data(), DType::f32, {1, 1, 1, 1}),
               .k_cache = TensorView(k_cache.data(), DType::f32, {1, 1, 1, 5}),
               .v_cache = TensorView(v_cache.data(), DType::f32, {1, 1, 1, 1}),
               .cos = TensorView(cos.data(), DType::f32, {1, 2}),
               .sin = TensorView(sin.data(), DType::f32, {1, 2}),
               .pairs = pairs},
              stream);
    stream.synchronize();
    EXPECT_EQ(v_cache[0], 6);
    return k_cache;
  };
  EXPECT_EQ(rotated(RotaryPairs::halves), (std::vector<float>{1, -4, 3, 2, 5}));
  EXPECT_EQ(rotated(RotaryPairs::neighbours), (std::vector<float>{1, 2, -4, 3, 5}));
}

// Every number of pairs, and memory behind them that stays as it is.
TEST(AppendKV, InstructionSetsGiveTheSameBits) {
  const detail::RotateRows fast = detail::rotate_rows_avx2(),
                           plain = detail::rotate_rows_baseline();
  if (fast.halves == nullptr) GTEST_SKIP() << "no AVX2";
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (std::size_t count = 0; count < 70; ++count) {
    std::vector<float> from(2 * count), cos(count), sin(count);
    for (auto* each : {&from, &cos, &sin}) {
      for (float& value : *each) value = normal(random);
    }
    const auto rotated = [&](detail::RotateRow rotate) {
      std::vector<float> to(2 * count + 16, -7);
      rotate(from.data(), cos.data(), sin.data(), count, to.data());
      return to;
    };
    EXPECT_EQ(rotated(fast.halves), rotated(plain.halves)) << count;
    EXPECT_EQ(rotated(fast.neighbours), rotated(plain.neighbours)) << count;
    EXPECT_EQ(rotated(plain.halves).back(), -7);
  }
}

TEST(AppendKV, LeavesOutRowsWithoutAPlace) {
  AppendCase full{.lengths = {6, 8}, .advance = true};
  AppendCall rows(1, full);
  run(rows);
  EXPECT_EQ(rows.wrong(), "");
  EXPECT_EQ(static_cast<std::int32_t*>(rows.options().lengths.data())[0], 8);

  full.page_rows = 2;
  full.lengths = {3, 2};
  for (const std::int32_t bad : {-1, 10, INT32_MAX, INT32_MIN}) {
    AppendCall pages(1, full);
    pages.set_page(0, 2, bad);
    run(pages);
    EXPECT_EQ(pages.wrong(), "") << "with page " << bad;
  }
}

// Whatever cu_new holds, nothing outside the arrays is touched.
TEST(AppendKV, SurvivesAbsurdBegins) {
  std::mt19937 random(5);
  for (int i = 0; i < 200; ++i) {
    AppendCase made{.cu_new = {0, 3, 5}, .lengths = {1, 2}, .advance = true};
    AppendCall call(1, made);
    AppendKVOptions options = call.options();
    auto* begins = static_cast<std::int32_t*>(options.cu_new.data());
    for (int b = 0; b < 3; ++b) {
      begins[b] = static_cast<std::int32_t>(random() % 3 == 0 ? random() : random() % 8);
    }
    const Stream stream(Device::cpu());
    append_kv(options, stream);
    stream.synchronize();
    const auto* lengths = static_cast<std::int32_t*>(options.lengths.data());
    EXPECT_TRUE(call.surroundings_untouched());
    for (int b = 0; b < 2; ++b) EXPECT_TRUE(lengths[b] >= 0 && lengths[b] <= 8) << lengths[b];
  }
}

// k and v of one page side by side, so that the elements of the two caches alternate.
TEST(AppendKV, CachesMayAlternateInMemory) {
  std::vector<float> k{1, 2}, v{3, 4}, both(2 * 3 * 2 * 2, -1);
  const std::int64_t shape[] = {2, 3, 1, 2}, strides[] = {12, 4, 2, 1};
  std::vector<std::int32_t> pages{1, 0};
  const Stream stream(Device::cpu());
  append_kv({.k = TensorView(k.data(), DType::f32, {1, 1, 1, 2}),
             .v = TensorView(v.data(), DType::f32, {1, 1, 1, 2}),
             .k_cache = TensorView(both.data(), DType::f32, shape, strides),
             .v_cache = TensorView(both.data() + 2, DType::f32, shape, strides),
             .pages = TensorView(pages.data(), DType::i32, {1, 2}),
             .length = 1},
            stream);
  stream.synchronize();
  std::vector<float> expected(24, -1);
  expected[16] = 1, expected[17] = 2, expected[18] = 3, expected[19] = 4;
  EXPECT_EQ(both, expected);
}

}  // namespace
}  // namespace ps::test
