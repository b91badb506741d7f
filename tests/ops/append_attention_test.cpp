// append_attention() on the CPU against append_kv() and attention(). The kernels that do both at
// once are in tests/gpu/append_attention_test.cpp.
#include "penstock/ops/append_attention.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "support/append_attention_call.h"
#include "support/sanitized.h"

namespace ps::test {
namespace {

std::string differs(std::uint32_t seed, const AppendAttentionCase& of, bool check = false) {
  const Stream stream(Device::cpu());
  AppendAttentionCall joined(seed, of), apart(seed, of);
  AppendAttentionCall::Arguments arguments = joined.arguments();
  arguments.append.check = check;
  append_attention(arguments.append, arguments.attention, stream);
  AppendAttentionCall::run_apart(apart.arguments(), stream);
  stream.synchronize();
  return joined.differs(apart);
}

TEST(AppendAttention, IsAppendKVAndThenAttention) {
  for (std::uint32_t seed = 1; seed <= random_cases(120); ++seed) {
    const AppendAttentionCase of =
        random_append_attention(seed, 60, {{16, 16}, {24, 8}, {64, 40}},
                                {DType::bf16, DType::f16, DType::f32}, {1, 5, 8, 64});
    ASSERT_EQ(differs(seed, of), "") << "with seed " << seed;
  }
}

TEST(AppendAttention, WithACheck) {
  for (const std::int64_t page_rows : {0, 8}) {
    EXPECT_EQ(differs(1,
                      {.each = 3,
                       .page_rows = page_rows,
                       .lengths = {0, 37},
                       .advance = true,
                       .first_k = {0, 5}},
                      true),
              "");
    EXPECT_EQ(differs(1, {.cu_new = {0, 2, 5}, .length = 7, .max_q = 3}, true), "");
  }
}

// A query that weighs all keys equally.
TEST(AppendAttention, QueriesSeeTheNewRows) {
  const Stream stream(Device::cpu());
  float row[8] = {}, k_cache[24] = {}, v_cache[24] = {}, result[8] = {};
  float values[8] = {8, 8, 8, 8, 8, 8, 8, 8};
  const auto rows = [](float* data, std::int64_t count) {
    return TensorView(data, DType::f32, {1, count, 1, 8});
  };
  append_attention({.k = rows(row, 1),
                    .v = rows(values, 1),
                    .k_cache = rows(k_cache, 3),
                    .v_cache = rows(v_cache, 3),
                    .length = 1},
                   {.q = rows(row, 1), .out = rows(result, 1)}, stream);
  stream.synchronize();
  EXPECT_EQ(v_cache[8], 8);
  EXPECT_EQ(v_cache[16], 0);
  EXPECT_EQ(result[0], 4);  // the mean of 0 and 8
}

TEST(AppendAttention, WithoutRowsItDoesNothing) {
  EXPECT_EQ(differs(1, {.each = 0, .lengths = {3, 4}, .advance = true}), "");
  EXPECT_EQ(differs(1, {.sequences = 0}), "");
  EXPECT_EQ(differs(1, {.each = 0, .capacity = 0, .lengths = {0, 0}, .advance = true}), "");
}

}  // namespace
}  // namespace ps::test
