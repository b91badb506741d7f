// attention() on a GPU: every kernel that runs here, against the formula in f64.
#include "penstock/ops/attention.h"

#include <cstddef>
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

class AttentionGpu : public AttentionGpuTest, public testing::WithParamInterface<AttentionKernel> {
 protected:
  void SetUp() override {
    AttentionGpuTest::SetUp();
    if (!IsSkipped() && GetParam() == AttentionKernel::sm90 && !is_hopper()) {
      GTEST_SKIP() << "needs compute capability 9.0";
    }
  }

  void expect_right(std::uint32_t seed, const AttentionCase& of) const {
    AttentionGpuTest::expect_right({GetParam()}, seed, of);
  }
};

INSTANTIATE_TEST_SUITE_P(Kernels, AttentionGpu,
                         testing::Values(AttentionKernel::portable, AttentionKernel::sm90),
                         kernel_name);

// Of kernels that `best` chooses, or for which there is no choice.
using AttentionCallsGpu = AttentionGpuTest;

TEST_P(AttentionGpu, RandomCalls) {
  for (std::uint32_t seed = 1; seed <= 60; ++seed) {
    expect_right(seed,
                 random_attention_case(seed, 150, fast_attention_dims, {DType::bf16, DType::f16}));
    if (HasFatalFailure()) return;
  }
}

TEST_P(AttentionGpu, OddSizes) {
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

// Every kernel instance, small enough for the tools that are slow (scripts/gpu_check.sh).
TEST_P(AttentionGpu, SmallSizes) {
  std::uint32_t seed = 400;
  for (const AttentionDims& dims : fast_attention_dims) {
    AttentionCase of{.sequences = 1,
                     .q_rows = 150,
                     .k_rows = 150,
                     .heads_k = 1,
                     .dim = dims.dim,
                     .dim_v = dims.dim_v};
    of.type = ++seed % 2 == 0 ? DType::bf16 : DType::f16;
    expect_right(seed, of);
    of.causal = true;
    of.q_rows = 120;
    of.k_rows = 170;
    expect_right(seed, of);
    of.softcap = 20;
    of.sinks = true;
    AttentionCase paged = of;
    paged.lengths_k = {131};
    paged.page_rows = 16;
    expect_right(seed, paged);
    of.window_left = 40;
    of.q_rows = 200;
    of.cu_q = {0, 70, 70, 200};
    of.cu_k = {0, 30, 90, 170};
    expect_right(seed, of);
    if (HasFatalFailure()) return;
  }
  if (GetParam() == AttentionKernel::sm90) return;
  for (const AttentionDims& dims : {AttentionDims{16, 40}, AttentionDims{128, 128}}) {
    expect_right(seed, {.q_rows = 70,
                        .k_rows = 90,
                        .dim = dims.dim,
                        .dim_v = dims.dim_v,
                        .type = DType::f32,
                        .causal = true});
  }
}

TEST_P(AttentionGpu, EveryDimensionFullAndCausal) {
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

// A softcap multiplies the error of tanh.
TEST_P(AttentionGpu, LargeSoftcaps) {
  std::uint32_t seed = 500;
  for (const AttentionDims& dims : fast_attention_dims) {
    for (const float softcap : {30.F, 50.F}) {
      for (const double size : {1., 6.}) {
        ++seed;
        expect_right(seed, {.q_rows = 70,
                            .k_rows = 150,
                            .dim = dims.dim,
                            .dim_v = dims.dim_v,
                            .type = seed % 2 == 0 ? DType::bf16 : DType::f16,
                            .causal = true,
                            .softcap = softcap,
                            .size = size});
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Above and below the scores, by more than exp() can express.
TEST_P(AttentionGpu, SinksFarFromTheScores) {
  std::uint32_t seed = 600;
  for (const AttentionDims& dims : fast_attention_dims) {
    for (const double size : {40., 2000.}) {
      ++seed;
      expect_right(seed, {.q_rows = 70,
                          .k_rows = 150,
                          .heads_q = 8,
                          .dim = dims.dim,
                          .dim_v = dims.dim_v,
                          .type = seed / 2 % 2 == 0 ? DType::bf16 : DType::f16,
                          .causal = seed % 2 == 0,
                          .sinks = true,
                          .sink_size = size});
      if (HasFatalFailure()) return;
    }
  }
  if (GetParam() == AttentionKernel::sm90) return;
  expect_right(seed, {.heads_q = 8, .type = DType::f32, .sinks = true, .sink_size = 2000});
}

// What follows the last row of a sequence is NaN, as in all calls here.
TEST_P(AttentionGpu, Padding) {
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
TEST_P(AttentionGpu, KeysInPages) {
  for (std::uint32_t seed = 1; seed <= 60; ++seed) {
    const AttentionCase of =
        random_paged_case(seed, seed % 3 == 0 ? 500 : 200, fast_attention_dims,
                          {DType::bf16, DType::f16}, {1, 3, 7, 8, 16, 24, 50, 64, 128, 256, 300});
    const bool fits_sm90 = of.page_rows % 8 == 0 && of.first_k.empty();
    if (GetParam() == AttentionKernel::sm90 && !fits_sm90) continue;
    expect_right(seed, of);
    if (HasFatalFailure()) return;
  }
}

// Parts of a prompt, each attending to all before it.
TEST_P(AttentionGpu, AChunkedPromptInPages) {
  for (const AttentionDims& dims : fast_attention_dims) {
    for (const std::int64_t page_rows : {8, 16, 64, 256}) {
      expect_right(4, {.sequences = 2,
                       .q_rows = 70,
                       .k_rows = 700,
                       .heads_q = 2,
                       .dim = dims.dim,
                       .dim_v = dims.dim_v,
                       .causal = true,
                       .lengths_k = {697, 300},
                       .page_rows = page_rows});
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(AttentionCallsGpu, KeysInPagesOfOtherDimensionsAndF32) {
  for (std::uint32_t seed = 1; seed <= 30; ++seed) {
    AttentionCall call(seed, random_paged_case(seed, 100, other_dims,
                                               {DType::bf16, DType::f16, DType::f32}, {1, 8, 20}));
    ASSERT_EQ(run(call, {.kernel = AttentionKernel::portable}), "") << "seed " << seed;
  }
}

TEST_F(AttentionCallsGpu, OtherDimensionsAndF32) {
  std::uint32_t seed = 200;
  for (const AttentionDims& dims : other_dims) {
    for (const DType type : {DType::bf16, DType::f16, DType::f32}) {
      ++seed;
      AttentionCall call(seed, random_attention_case(seed, 100, {dims}, {type}));
      ASSERT_EQ(run(call, {}), "") << "seed " << seed;
    }
  }
}

// Index 0 of one dimension for all indices, or the indices backwards.
enum class Indices : std::uint8_t { constant, backwards };
TensorView with_indices(const TensorView& view, std::size_t dimension, Indices indices) {
  std::vector<std::int64_t> strides(view.strides().begin(), view.strides().end());
  const std::int64_t stride = std::exchange(
      strides[dimension], indices == Indices::constant ? 0 : -view.strides()[dimension]);
  const std::int64_t first =
      indices == Indices::constant ? 0 : (view.extent(dimension) - 1) * stride;
  return {static_cast<std::byte*>(view.data()) +
              first * static_cast<std::int64_t>(size_of(view.dtype())),
          view.dtype(), view.shape(), strides, view.place()};
}

TEST_F(AttentionCallsGpu, StridesThatTensorMapsDoNotTake) {
  const Stream stream(gpu), cpu(Device::cpu());
  const Pool pool(gpu);
  const auto expect_right = [&](const AttentionCase& of, TensorView AttentionOptions::* array,
                                std::size_t dimension, Indices indices) {
    AttentionCall expected(3, of);
    AttentionOptions options = expected.options();
    options.*array = with_indices(options.*array, dimension, indices);
    attention(options, cpu);
    cpu.synchronize();
    for (const AttentionKernel kernel :
         {AttentionKernel::best, AttentionKernel::decode, AttentionKernel::portable}) {
      AttentionCall call(3, of);
      Copies copies(gpu, stream);
      options = call.options([&](Strided& each) { return copies.of(each); });
      options.*array = with_indices(options.*array, dimension, indices);
      options.kernel = kernel;
      options.pool = &pool;
      attention(options, stream);
      copies.fetch();
      ASSERT_EQ(call.differs(expected), "")
          << "kernel " << static_cast<int>(kernel) << ", dimension " << dimension
          << (indices == Indices::constant ? ", constant" : ", backwards");
    }
  };
  for (const std::int64_t queries : {3, 70}) {
    for (const auto array : {&AttentionOptions::q, &AttentionOptions::k, &AttentionOptions::v}) {
      for (const std::size_t dimension : {0, 1, 2}) {
        for (const Indices indices : {Indices::constant, Indices::backwards}) {
          expect_right({.q_rows = queries, .k_rows = 90, .dim = 64, .dim_v = 64}, array, dimension,
                       indices);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(AttentionGpu, WithoutQueriesOrKeys) {
  expect_right(1, {.q_rows = 0, .dim = 64, .dim_v = 64});
  expect_right(1, {.sequences = 0, .dim = 64, .dim_v = 64});
  expect_right(1, {.k_rows = 0, .dim = 128, .dim_v = 128});
  expect_right(1,
               {.q_rows = 9, .k_rows = 4, .dim = 64, .dim_v = 64, .causal = true, .sinks = true});
}

TEST_P(AttentionGpu, WrongLengthsStayInsideTheTensors) {
  AttentionCase of{.q_rows = 300, .k_rows = 280, .dim = 64, .dim_v = 64};
  of.cu_q = {0, 150, 300};
  of.cu_k = {0, 140, 280};
  expect_inside(of, {.kernel = GetParam()});
}

TEST_P(AttentionGpu, WrongPaddingAndPagesStayInsideTheTensors) {
  AttentionCase of{.q_rows = 150,
                   .k_rows = 280,
                   .dim = 64,
                   .dim_v = 64,
                   .causal = true,
                   .first_k = {0, 3},
                   .lengths_k = {280, 100}};
  expect_inside_padding(of, {.kernel = GetParam()});
  of.page_rows = 16;
  if (GetParam() == AttentionKernel::sm90) of.first_k = {};
  expect_inside_padding(of, {.kernel = GetParam()});
}

TEST_P(AttentionGpu, GivesTheSameBitsEveryTime) {
  for (const AttentionDims& dims : fast_attention_dims) {
    expect_same_bits({.q_rows = 500,
                      .k_rows = 500,
                      .heads_q = 8,
                      .dim = dims.dim,
                      .dim_v = dims.dim_v,
                      .causal = true},
                     {.kernel = GetParam()}, 20);
    if (HasFatalFailure()) return;
  }
}

TEST_P(AttentionGpu, MayBeCaptured) {
  expect_right_in_a_graph({.q_rows = 300,
                           .k_rows = 300,
                           .dim = 64,
                           .dim_v = 64,
                           .causal = true,
                           .cu_q = {0, 100, 300},
                           .cu_k = {0, 100, 300}},
                          GetParam());
}

TEST_F(AttentionCallsGpu, ACheckFindsWrongLengths) {
  AttentionCase of{.q_rows = 30, .k_rows = 30, .dim = 64, .dim_v = 64};
  of.cu_q = of.cu_k = {0, 10, 30};
  AttentionCall call(1, of);
  call.spoil_lengths({0, 20, 10}, {});
  EXPECT_EQ(refused(call), "cu_q");
}

TEST_F(AttentionCallsGpu, ACheckFindsBadPages) {
  AttentionCall call(1, {.sequences = 1,
                         .k_rows = 100,
                         .dim = 64,
                         .dim_v = 64,
                         .lengths_k = {100},
                         .page_rows = 8,
                         .bad_pages = true});
  EXPECT_EQ(refused(call), "pages");
}

TEST_F(AttentionCallsGpu, FewQueriesAreDecoded) {
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
