// What attention() computes on the CPU.
#include "penstock/ops/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "ops/attention/arguments.h"
#include "ops/attention/cpu.h"
#include "ops/product/kernel.h"
#include "support/attention_call.h"
#include "support/attention_random.h"
#include "support/sanitized.h"

namespace ps::test {
namespace {

const std::vector<AttentionDims> some_dims{{8, 8}, {16, 24}, {64, 64}, {72, 40}, {192, 128}};
using Shape = std::vector<std::int64_t>;
const std::vector<DType> all_types{DType::bf16, DType::f16, DType::f32};

void run(AttentionCall& call) {
  const Stream stream(Device::cpu());
  attention(call.options(), stream);
  stream.synchronize();
}

std::string wrong_result(const AttentionCase& of) {
  AttentionCall call(1, of);
  run(call);
  return call.wrong();
}

TEST(Attention, AgreesWithTheFormula) {
  for (std::uint32_t seed = 1; seed <= random_cases(120); ++seed) {
    AttentionCall call(seed, random_attention_case(seed, 40, some_dims, all_types));
    run(call);
    ASSERT_EQ(call.wrong(), "") << "with seed " << seed;
  }
}

// Several tiles of rows and blocks of keys.
TEST(Attention, OfLongerSequences) {
  for (std::uint32_t seed = 1; seed <= 12; ++seed) {
    AttentionCase of = random_attention_case(seed, 400, {{16, 8}}, all_types);
    of.sequences = 1;
    of.cu_q = of.cu_k = of.first_k = of.lengths_k = {};
    AttentionCall call(seed, of);
    run(call);
    ASSERT_EQ(call.wrong(), "") << "with seed " << seed;
  }
}

TEST(Attention, OfSizesAroundThoseOfBlocks) {
  for (const auto& [q, k] : {std::pair{1, 1},
                             {1, 127},
                             {1, 128},
                             {1, 129},
                             {127, 3},
                             {128, 128},
                             {129, 257},
                             {64, 300},
                             {3, 1},
                             {300, 5}}) {
    for (const bool causal : {false, true}) {
      EXPECT_EQ(wrong_result({.sequences = 1,
                              .q_rows = q,
                              .k_rows = k,
                              .heads_q = 1,
                              .heads_k = 1,
                              .type = DType::f32,
                              .causal = causal}),
                "");
    }
  }
}

TEST(Attention, OfEveryHeadDimension) {
  for (std::int64_t dim = 8; dim <= 256; dim += 8) {
    EXPECT_EQ(wrong_result({.dim = dim, .dim_v = 264 - dim, .type = DType::f32}), "");
  }
}

TEST(Attention, HeadsOfKAreShared) {
  for (const auto& [q, k] : {std::pair{1, 1}, {5, 1}, {6, 2}, {6, 3}, {6, 6}}) {
    EXPECT_EQ(wrong_result({.heads_q = q, .heads_k = k, .causal = true}), "");
  }
}

TEST(Attention, WithoutSequencesOrQueriesNothingIsWritten) {
  EXPECT_EQ(wrong_result({.sequences = 0}), "");
  EXPECT_EQ(wrong_result({.q_rows = 0}), "");
  EXPECT_EQ(wrong_result({.q_rows = 3, .cu_q = {0}, .cu_k = {0}}), "");
  EXPECT_EQ(wrong_result({.q_rows = 0, .k_rows = 0, .cu_q = {0, 0, 0}, .cu_k = {0, 0, 0}}), "");
}

// 0, and -infinity in lse: also with sinks.
TEST(Attention, QueriesWithoutKeys) {
  for (const bool sinks : {false, true}) {
    EXPECT_EQ(wrong_result({.k_rows = 0, .sinks = sinks}), "");
    EXPECT_EQ(wrong_result({.q_rows = 9, .k_rows = 4, .causal = true, .sinks = sinks}), "");
    EXPECT_EQ(wrong_result({.q_rows = 9,
                            .k_rows = 9,
                            .causal = true,
                            .sinks = sinks,
                            .first_k = {4, 9},
                            .lengths_k = {9, 9}}),
              "");
  }
}

// What is no part of a sequence is NaN in all calls here; also at the end of a block.
TEST(Attention, RowsBeyondTheLengthsMayBeNan) {
  EXPECT_EQ(wrong_result({.sequences = 3,
                          .q_rows = 4,
                          .k_rows = 200,
                          .type = DType::f16,
                          .first_k = {0, 3, 129},
                          .lengths_k = {1, 130, 131}}),
            "");
}

TEST(Attention, LargeScoresDoNotOverflow) {
  for (const DType type : all_types) {
    EXPECT_EQ(wrong_result({.k_rows = 150, .type = type, .size = 6}), "");
  }
  EXPECT_EQ(wrong_result({.type = DType::f32, .softcap = 30, .size = 20}), "");
  for (const DType type : all_types) {
    EXPECT_EQ(wrong_result({.k_rows = 150, .type = type, .softcap = 50, .size = 6}), "");
  }
}

// Above and below the scores, by more than exp() can express. The last call has its keys in pieces.
TEST(Attention, SinksFarFromTheScores) {
  for (const DType type : all_types) {
    for (const double size : {40., 2000.}) {
      AttentionCase of{.heads_q = 8, .type = type, .sinks = true, .sink_size = size};
      EXPECT_EQ(wrong_result(of), "");
      of.k_rows = 2500;
      of.sink_type = DType::bf16;
      EXPECT_EQ(wrong_result(of), "");
    }
  }
}

TEST(Attention, ANegativeScale) {
  EXPECT_EQ(wrong_result({.type = DType::f32, .causal = true, .scale = -0.25F}), "");
}

TEST(Attention, KeysInPages) {
  for (std::uint32_t seed = 1; seed <= random_cases(120); ++seed) {
    AttentionCall call(seed, random_paged_case(seed, seed % 4 == 0 ? 300 : 40, some_dims, all_types,
                                               {1, 2, 3, 8, 16, 64, 100}));
    run(call);
    ASSERT_EQ(call.wrong(), "") << "with seed " << seed;
  }
}

TEST(Attention, PagesHaveTheBitsOfContiguousKeys) {
  for (const bool heads_first : {false, true}) {
    AttentionCase of{.sequences = 1,
                     .q_rows = 3,
                     .k_rows = 200,
                     .heads_q = 4,
                     .causal = true,
                     .heads_first = heads_first};
    AttentionCall contiguous(1, of);
    run(contiguous);
    AttentionOptions call = contiguous.options();
    const auto in_pages = [&](const TensorView& all) {
      const auto strides = all.strides();
      return TensorView(all.data(), all.dtype(), Shape{8, 25, 2, 16},
                        Shape{25 * strides[1], strides[1], strides[2], 1});
    };
    std::vector<std::int32_t> table{0, 1, 2, 3, 4, 5, 6, 7};
    Strided out = contiguous.out();
    call.k = in_pages(call.k);
    call.v = in_pages(call.v);
    call.pages = TensorView(table.data(), DType::i32, {1, 8});
    call.out = out.view();
    const Stream stream(Device::cpu());
    attention(call, stream);
    stream.synchronize();
    EXPECT_EQ(out.bytes(), contiguous.out().bytes());
  }
}

TEST(Attention, ATableWithoutPages) {
  EXPECT_EQ(wrong_result({.k_rows = 0, .sinks = true, .page_rows = 4}), "");
}

// Rows of q and k may overlap: strides of 0, as expanded tensors have them, and negative ones.
TEST(Attention, TakesAnyStrides) {
  std::vector<float> numbers(64, 0.5F), out(3 * 4 * 2 * 8, -1);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
  const std::vector<std::int64_t> q_shape{3, 4, 2, 8}, k_shape{3, 5, 1, 8};
  const Stream stream(Device::cpu());
  const auto view = [&](const std::vector<std::int64_t>& shape, std::int64_t row) {
    return TensorView(numbers.data() + 40, DType::f32, shape,
                      std::vector<std::int64_t>{0, row, 0, 1});
  };
  attention({.q = view(q_shape, 0),
             .k = view(k_shape, 0),
             .v = view(k_shape, -8),
             .out = TensorView(out.data(), DType::f32, q_shape)},
            stream);
  stream.synchronize();
  // All keys are equal, so that the result is the mean of the values: rows 40, 32, ..., 8.
  for (std::size_t i = 0; i < out.size(); ++i) {
    EXPECT_NEAR(out[i], 24 + static_cast<float>(i % 8), 1e-4) << i;
  }
}

TEST(Attention, ANanStaysInItsRow) {
  AttentionCall call(1, {.sequences = 1, .q_rows = 6, .k_rows = 6, .type = DType::f32});
  call.q().set_bits({0, 4, 1, 7}, encoded(NAN, DType::f32));
  run(call);
  for (std::int64_t i = 0; i < 6; ++i) {
    for (std::int64_t h = 0; h < 2; ++h) {
      const double got =
          decoded(static_cast<std::uint32_t>(call.out().bits({0, i, h, 3})), DType::f32);
      EXPECT_EQ(std::isnan(got), i == 4 && h == 1) << i << " " << h;
    }
  }
}

TEST(Attention, GivesTheSameBitsEveryTime) {
  for (const DType type : all_types) {
    const AttentionCase of{
        .q_rows = 300, .k_rows = 280, .heads_q = 4, .type = type, .causal = true};
    AttentionCall first(1, of);
    run(first);
    for (int round = 0; round < 3; ++round) {
      AttentionCall again(1, of);
      run(again);
      ASSERT_EQ(again.out().bytes(), first.out().bytes());
      ASSERT_EQ(again.lse().bytes(), first.lse().bytes());
    }
  }
}

// The keys of a sequence with few queries are cut into pieces, for which threads are free.
TEST(Attention, KeysAreCutTheSameForAnyNumberOfThreads) {
  for (const DType type : all_types) {
    AttentionCall call(1, {.sequences = 3,
                           .q_rows = 2,
                           .k_rows = 4500,
                           .heads_q = 8,
                           .dim_v = 24,
                           .type = type,
                           .causal = true,
                           .sinks = true,
                           .first_k = {0, 2900, 7},
                           .lengths_k = {4500, 3001, 1100},
                           .size = 3});
    const detail::AttentionWork work = attending::checked(call.options(), Device::cpu());
    std::vector<std::uint8_t> first_out, first_lse;
    std::size_t most_tasks = 0;
    for (std::size_t threads = 1; threads <= 5; ++threads) {
      detail::compute_attention(work, [&](std::size_t count, std::size_t, const auto& of_range) {
        most_tasks = std::max(most_tasks, count);
        const auto run_some = [&](std::size_t thread) {
          const std::size_t each = (count + threads - 1) / threads;
          const std::size_t begin = std::min(count, thread * each);
          if (begin < count) of_range(begin, std::min(count, begin + each));
        };
        std::vector<std::jthread> others;
        for (std::size_t thread = 1; thread < threads; ++thread) {
          others.emplace_back(run_some, thread);
        }
        run_some(0);
      });
      if (threads == 1) {
        EXPECT_EQ(call.wrong(), "");
        first_out = call.out().bytes();
        first_lse = call.lse().bytes();
      }
      EXPECT_TRUE(call.out().bytes() == first_out) << threads << " threads";
      EXPECT_TRUE(call.lse().bytes() == first_lse) << threads << " threads";
    }
    EXPECT_EQ(most_tasks, 2U * (5 + 1 + 2));  // pieces of 8 blocks of 128 keys, of two heads of k
  }
}

// Without a check they give some result inside `out`.
TEST(Attention, WrongLengthsStayInsideTheTensors) {
  const std::vector<std::vector<std::int32_t>> wrong{
      {0, 100, 5}, {-7, 3, 2000000000}, {5, 0, 3}, {9, 9, 9}};
  for (const auto& cumulative : wrong) {
    AttentionCase of{.q_rows = 6, .k_rows = 6};
    of.cu_q = of.cu_k = {0, 3, 6};
    AttentionCall call(1, of);
    call.spoil_lengths(cumulative, {-4, 77});
    run(call);
    EXPECT_TRUE(call.out().surroundings_untouched());
    EXPECT_TRUE(call.lse().surroundings_untouched());
  }
}

TEST(Attention, RowsBeyondMaxAreIgnored) {
  AttentionCase of{.q_rows = 9, .k_rows = 9, .cu_q = {0, 4, 9}, .cu_k = {0, 4, 9}};
  AttentionCall call(1, of);
  AttentionOptions options = call.options();
  options.max_q = 4;
  const Stream stream(Device::cpu());
  attention(options, stream);
  stream.synchronize();
  EXPECT_NE(call.out().bits({7, 0, 0}), 0xFFFFU);
  EXPECT_EQ(call.out().bits({8, 0, 0}), 0xFFFFU);
}

// One row and a few more than a tile of registers, against plain loops.
void expect_right(const detail::AttentionRows& rows) {
  constexpr std::size_t keys = 37, columns = 80, stride = 48, v_stride = 96;
  std::vector<float> p(9 * stride), v(keys * v_stride), out(9 * v_stride), factor(9);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (std::vector<float>* each : {&p, &v, &out, &factor}) {
    for (float& number : *each) number = normal(random);
  }
  const std::vector<float> products = p, before = out;
  for (std::size_t r = 0; r < 9; ++r) {
    detail::AttentionRow row{r % 2 == 0 ? -INFINITY : 0.5F, r % 2 == 0 ? 0.F : 2.F};
    const float softcap = r % 3 == 0 ? 1.5F : 0.F;
    const std::size_t begin = r, end = keys - 2 * r;
    const double old = row.maximum;
    factor[r] = rows.softmax(&p[r * stride], begin, end, keys, {0.7F, softcap}, row);
    std::vector<double> scores(keys, -INFINITY);
    double most = old, sum = 0;
    for (std::size_t j = begin; j < end; ++j) {
      scores[j] = 0.7 * products[r * stride + j];
      if (softcap > 0) scores[j] = softcap * std::tanh(scores[j] / softcap);
      most = std::max(most, scores[j]);
    }
    for (std::size_t j = 0; j < keys; ++j) {
      EXPECT_NEAR(p[r * stride + j], std::exp(scores[j] - most), 1e-6) << r << " " << j;
      sum += std::exp(scores[j] - most);
    }
    const double change = std::isinf(old) ? 0 : std::exp(old - most);
    EXPECT_NEAR(factor[r], change, 1e-6);
    EXPECT_NEAR(row.maximum, most, 1e-6);
    EXPECT_NEAR(row.sum, sum + (std::isinf(old) ? 0 : 2 * change), 1e-5);
  }
  rows.accumulate(p.data(), stride, v.data(), v_stride, factor.data(), 9, keys, columns, out.data(),
                  v_stride);
  for (std::size_t r = 0; r < 9; ++r) {
    for (std::size_t c = 0; c < v_stride; ++c) {
      double sum = c < columns ? factor[r] * before[r * v_stride + c] : before[r * v_stride + c];
      for (std::size_t j = 0; c < columns && j < keys; ++j) {
        sum += double{p[r * stride + j]} * v[j * v_stride + c];
      }
      EXPECT_NEAR(out[r * v_stride + c], sum, 1e-4) << r << " " << c;
    }
  }
}

TEST(Attention, EveryInstructionSet) {
  using detail::InstructionSet;
  expect_right(*detail::attention_rows_baseline());
  if (product_kernel(InstructionSet::avx2, DType::f32) != nullptr) {
    expect_right(*detail::attention_rows_avx2());
  }
  if (product_kernel(InstructionSet::avx512, DType::f32) != nullptr) {
    expect_right(*detail::attention_rows_avx512());
  }
}

}  // namespace
}  // namespace ps::test
