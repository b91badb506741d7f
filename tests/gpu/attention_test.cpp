// attention() on a GPU: every kernel that runs here, against the formula in f64.
#include "penstock/ops/attention.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gpu/attention_gpu.h"

namespace ps::test {
namespace {

// Rounded up by the portable kernels.
const std::vector<AttentionDims> other_dims{{8, 8},   {16, 40},   {64, 72},  {104, 128},
                                            {136, 8}, {192, 136}, {232, 64}, {40, 256}};

class AttentionGpu : public AttentionGpuTest {
 protected:
  // Those for any number of queries.
  std::vector<AttentionKernel> kernels() const {
    std::vector<AttentionKernel> all{AttentionKernel::portable};
    if (is_hopper()) all.push_back(AttentionKernel::sm90);
    return all;
  }

  void expect_right(std::uint32_t seed, const AttentionCase& of) const {
    AttentionGpuTest::expect_right(kernels(), seed, of);
  }
};

TEST_F(AttentionGpu, RandomCalls) {
  for (std::uint32_t seed = 1; seed <= 60; ++seed) {
    expect_right(seed,
                 random_attention_case(seed, 150, fast_attention_dims, {DType::bf16, DType::f16}));
    if (HasFatalFailure()) return;
  }
}

TEST_F(AttentionGpu, OddSizes) {
  const std::vector<std::pair<int, int>> sizes{
      {1, 1},     {1, 2},    {2, 1},     {3, 65},    {17, 16},   {63, 64},  {64, 63},
      {65, 129},  {127, 33}, {128, 128}, {129, 127}, {113, 203}, {1, 300},  {300, 1},
      {192, 191}, {193, 81}, {255, 256}, {257, 385}, {384, 160}, {401, 512}};
  std::uint32_t seed = 100;
  for (const auto& [q, k] : sizes) {
    for (const AttentionDims& dims : fast_attention_dims) {
      for (const bool causal : {false, true}) {
        ++seed;
        expect_right(seed, {.sequences = 1,
                            .q_rows = q,
                            .k_rows = k,
                            .heads_q = 2,
                            .heads_k = 1,
                            .dim = dims.dim,
                            .dim_v = dims.dim_v,
                            .type = seed / 2 % 2 == 0 ? DType::bf16 : DType::f16,
                            .causal = causal});
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(AttentionGpu, EveryDimensionFullAndCausal) {
  for (const AttentionDims& dims : fast_attention_dims) {
    for (const bool causal : {false, true}) {
      for (const DType type : {DType::bf16, DType::f16}) {
        expect_right(1, {.q_rows = 200,
                         .k_rows = 333,
                         .heads_q = 3,
                         .heads_k = 3,
                         .dim = dims.dim,
                         .dim_v = dims.dim_v,
                         .type = type,
                         .causal = causal});
        if (HasFatalFailure()) return;
      }
    }
  }
}

// What follows the last row of a sequence is NaN, as in all calls here.
TEST_F(AttentionGpu, Padding) {
  for (const AttentionDims& dims : fast_attention_dims) {
    expect_right(2, {.sequences = 3,
                     .q_rows = 130,
                     .k_rows = 260,
                     .dim = dims.dim,
                     .dim_v = dims.dim_v,
                     .causal = true,
                     .first_k = {0, 129, 131},
                     .lengths_k = {1, 130, 260}});
    if (HasFatalFailure()) return;
  }
}

// What pages hold behind the sequences, and pages of no sequence, are NaN.
TEST_F(AttentionGpu, KeysInPages) {
  for (std::uint32_t seed = 1; seed <= 60; ++seed) {
    const AttentionCase of =
        random_paged_case(seed, seed % 3 == 0 ? 500 : 200, fast_attention_dims,
                          {DType::bf16, DType::f16}, {1, 3, 7, 8, 16, 24, 50, 64, 128, 256, 300});
    std::vector<AttentionKernel> each{AttentionKernel::portable};
    if (is_hopper() && of.page_rows % 8 == 0 && of.first_k.empty()) {
      each.push_back(AttentionKernel::sm90);
    }
    AttentionGpuTest::expect_right(each, seed, of);
    if (HasFatalFailure()) return;
  }
}

// Parts of a prompt, each attending to all before it.
TEST_F(AttentionGpu, AChunkedPromptInPages) {
  for (const AttentionDims& dims : fast_attention_dims) {
    for (const std::int64_t page_rows : {8, 16, 64, 256}) {
      expect_right(4, {.sequences = 2,
                       .q_rows = 140,
                       .k_rows = 700,
                       .heads_q = 4,
                       .dim = dims.dim,
                       .dim_v = dims.dim_v,
                       .causal = true,
                       .lengths_k = {697, 300},
                       .page_rows = page_rows});
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(AttentionGpu, KeysInPagesOfOtherDimensionsAndF32) {
  for (std::uint32_t seed = 1; seed <= 30; ++seed) {
    AttentionCall call(seed, random_paged_case(seed, 100, other_dims,
                                               {DType::bf16, DType::f16, DType::f32}, {1, 8, 20}));
    ASSERT_EQ(run(call, {.kernel = AttentionKernel::portable}), "") << "seed " << seed;
  }
}

TEST_F(AttentionGpu, OtherDimensionsAndF32) {
  std::uint32_t seed = 200;
  for (const AttentionDims& dims : other_dims) {
    for (const DType type : {DType::bf16, DType::f16, DType::f32}) {
      ++seed;
      AttentionCall call(seed, random_attention_case(seed, 100, {dims}, {type}));
      ASSERT_EQ(run(call, {}), "") << "seed " << seed;
    }
  }
}

TEST_F(AttentionGpu, StridesThatTensorMapsDoNotTake) {
  AttentionCall call(3, {.q_rows = 70, .k_rows = 90, .dim = 64, .dim_v = 64});
  const Stream stream(gpu);
  const Pool pool(gpu);
  Copies copies(gpu, stream);
  AttentionOptions options = call.options([&](Strided& array) { return copies.of(array); });
  options.pool = &pool;
  // All queries are the first one of their head: stride 0.
  const auto strides = options.q.strides();
  options.q =
      TensorView(options.q.data(), options.q.dtype(), options.q.shape(),
                 std::vector<std::int64_t>{strides[0], 0, strides[2], 1}, options.q.place());
  attention(options, stream);
  copies.fetch();
  for (std::int64_t i = 1; i < 70; ++i) {
    ASSERT_EQ(call.out().bits({1, i, 1, 5}), call.out().bits({1, 0, 1, 5})) << i;
  }
}

TEST_F(AttentionGpu, WithoutQueriesOrKeys) {
  expect_right(1, {.q_rows = 0, .dim = 64, .dim_v = 64});
  expect_right(1, {.sequences = 0, .dim = 64, .dim_v = 64});
  expect_right(1, {.k_rows = 0, .dim = 128, .dim_v = 128});
  expect_right(1,
               {.q_rows = 9, .k_rows = 4, .dim = 64, .dim_v = 64, .causal = true, .sinks = true});
}

TEST_F(AttentionGpu, WrongLengthsStayInsideTheTensors) {
  AttentionCase of{.q_rows = 300, .k_rows = 280, .dim = 64, .dim_v = 64};
  of.cu_q = {0, 150, 300};
  of.cu_k = {0, 140, 280};
  for (const AttentionKernel kernel : kernels()) expect_inside(of, {.kernel = kernel});
}

TEST_F(AttentionGpu, GivesTheSameBitsEveryTime) {
  for (const AttentionDims& dims : fast_attention_dims) {
    for (const AttentionKernel kernel : kernels()) {
      expect_same_bits({.q_rows = 500,
                        .k_rows = 500,
                        .heads_q = 8,
                        .dim = dims.dim,
                        .dim_v = dims.dim_v,
                        .causal = true},
                       {.kernel = kernel}, 4);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(AttentionGpu, MayBeCaptured) {
  for (const AttentionKernel kernel : kernels()) {
    expect_right_in_a_graph({.q_rows = 300,
                             .k_rows = 300,
                             .dim = 64,
                             .dim_v = 64,
                             .causal = true,
                             .cu_q = {0, 100, 300},
                             .cu_k = {0, 100, 300}},
                            kernel);
  }
}

TEST_F(AttentionGpu, ACheckFindsWrongLengths) {
  AttentionCase of{.q_rows = 30, .k_rows = 30, .dim = 64, .dim_v = 64};
  of.cu_q = of.cu_k = {0, 10, 30};
  AttentionCall call(1, of);
  call.spoil_lengths({0, 20, 10}, {});
  EXPECT_EQ(refused(call), "cu_q");
}

TEST_F(AttentionGpu, ACheckFindsBadPages) {
  AttentionCall call(1, {.sequences = 1,
                         .k_rows = 100,
                         .dim = 64,
                         .dim_v = 64,
                         .lengths_k = {100},
                         .page_rows = 8,
                         .bad_pages = true});
  EXPECT_EQ(refused(call), "pages");
}

TEST_F(AttentionGpu, FewQueriesAreDecoded) {
  for (const std::int64_t queries : {1, 16}) {
    const AttentionCase of{.q_rows = queries, .k_rows = 3000, .dim = 128, .dim_v = 128};
    AttentionCall best(1, of), decode(1, of);
    ASSERT_EQ(run(best, {}), "");
    ASSERT_EQ(run(decode, {.kernel = AttentionKernel::decode}), "");
    EXPECT_EQ(best.out().bytes(), decode.out().bytes());
  }
}

}  // namespace
}  // namespace ps::test
