// The decode kernels of attention() on a GPU, against the formula in f64.
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gpu/attention_gpu.h"
#include "penstock/ops/attention.h"

namespace ps::test {
namespace {

// Rounded up by the portable kernel.
const std::vector<AttentionDims> other_dims{{8, 8}, {16, 40}, {104, 128}, {136, 8}, {40, 256}};
const std::vector<DType> types{DType::bf16, DType::f16, DType::f32};
const std::vector<std::int64_t> fast_pages{8, 16, 24, 64, 128, 256};
const std::vector<std::int64_t> other_pages{1, 3, 12, 20, 100};

// Few queries, and any number of query heads per head of k.
AttentionCase with_few_queries(AttentionCase of, std::uint32_t seed) {
  std::mt19937 random(seed + 77);
  constexpr std::int64_t groups[] = {1, 2, 4, 5, 8, 16, 17, 40, 80};
  of.heads_q = of.heads_k * groups[random() % std::size(groups)];
  of.q_rows = 1 + static_cast<std::int64_t>(random() % 16);
  if (of.cu_q.empty()) return of;
  for (std::size_t b = 0; b + 1 < of.cu_q.size(); ++b) {
    of.cu_q[b + 1] = of.cu_q[b] + static_cast<std::int32_t>(random() % 17);
  }
  of.q_rows = of.cu_q.back() + static_cast<std::int64_t>(random() % 3);
  return of;
}

class AttentionDecodeGpu : public AttentionGpuTest,
                           public testing::WithParamInterface<AttentionKernel> {
 protected:
  void expect_right(std::uint32_t seed, const AttentionCase& of) const {
    const AttentionCall made(seed, of);
    for (const bool batch_invariant : {false, true}) {
      AttentionCall call = made;
      ASSERT_EQ(run(call, {.kernel = GetParam(), .batch_invariant = batch_invariant}), "")
          << "seed " << seed << (batch_invariant ? ", batch invariant" : "");
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Kernels, AttentionDecodeGpu,
                         testing::Values(AttentionKernel::decode, AttentionKernel::decode_portable),
                         kernel_name);

TEST_P(AttentionDecodeGpu, RandomCalls) {
  for (std::uint32_t seed = 1; seed <= 60; ++seed) {
    expect_right(
        seed, with_few_queries(random_attention_case(seed, 500, fast_attention_dims, types), seed));
    if (HasFatalFailure()) return;
  }
}

TEST_P(AttentionDecodeGpu, KeysInPages) {
  for (std::uint32_t seed = 1; seed <= 60; ++seed) {
    const std::vector<std::int64_t>& pages = seed % 4 == 0 ? other_pages : fast_pages;
    expect_right(seed, with_few_queries(
                           random_paged_case(seed, 600, fast_attention_dims, types, pages), seed));
    if (HasFatalFailure()) return;
  }
}

TEST_P(AttentionDecodeGpu, PagesOfEverySize) {
  for (const std::int64_t page_rows : {1, 5, 8, 24, 64, 300}) {
    expect_right(2, {.q_rows = 2,
                     .k_rows = 290,
                     .heads_q = 8,
                     .dim = 64,
                     .dim_v = 64,
                     .causal = true,
                     .lengths_k = {290, 131},
                     .page_rows = page_rows,
                     .bad_pages = page_rows == 8});
    if (HasFatalFailure()) return;
  }
}

TEST_P(AttentionDecodeGpu, OtherDimensions) {
  for (std::uint32_t seed = 1; seed <= 30; ++seed) {
    const AttentionCase of = seed % 2 == 0
                                 ? random_attention_case(seed, 300, other_dims, types)
                                 : random_paged_case(seed, 300, other_dims, types, {8, 5, 32});
    expect_right(seed, with_few_queries(of, seed));
    if (HasFatalFailure()) return;
  }
}

TEST_P(AttentionDecodeGpu, SizesAroundThoseOfBlocks) {
  std::uint32_t seed = 300;
  for (const int keys : {1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 191, 1023, 1024, 1025}) {
    const AttentionDims& dims = fast_attention_dims[++seed % fast_attention_dims.size()];
    expect_right(seed, {.q_rows = 1,
                        .k_rows = keys,
                        .heads_q = 8,
                        .dim = dims.dim,
                        .dim_v = dims.dim_v,
                        .causal = true});
    if (HasFatalFailure()) return;
  }
}

// A softcap multiplies the error of tanh.
TEST_P(AttentionDecodeGpu, LargeSoftcaps) {
  std::uint32_t seed = 500;
  for (const AttentionDims& dims : fast_attention_dims) {
    for (const double size : {1., 6.}) {
      ++seed;
      expect_right(seed, {.q_rows = 2,
                          .k_rows = 300,
                          .heads_q = 8,
                          .dim = dims.dim,
                          .dim_v = dims.dim_v,
                          .type = types[seed % types.size()],
                          .causal = true,
                          .softcap = seed % 2 == 0 ? 30.F : 50.F,
                          .size = size});
      if (HasFatalFailure()) return;
    }
  }
}

// Its kernel has tiles of 16 rows and blocks of 32 keys.
TEST_P(AttentionDecodeGpu, F32) {
  std::uint32_t seed = 700;
  for (const std::int64_t keys : {1, 31, 32, 33, 200, 2500}) {
    for (const std::int64_t queries : {1, 5, 16}) {
      AttentionCase of{.q_rows = queries,
                       .k_rows = keys,
                       .heads_q = 10,
                       .dim = 40,
                       .dim_v = 64,
                       .type = DType::f32,
                       .causal = ++seed % 2 == 0,
                       .sinks = seed % 3 == 0};
      if (seed % 4 == 0) of.window_left = 50;
      expect_right(seed, of);
      of.page_rows = 12;
      of.first_k = {0, static_cast<std::int32_t>(keys / 2)};
      of.lengths_k = {static_cast<std::int32_t>(keys), static_cast<std::int32_t>(keys * 2 / 3)};
      expect_right(seed, of);
      if (HasFatalFailure()) return;
    }
  }
}

// Above and below the scores, by more than exp() can express; also where parts are combined.
TEST_P(AttentionDecodeGpu, SinksFarFromTheScores) {
  std::uint32_t seed = 600;
  for (const AttentionDims& dims : fast_attention_dims) {
    for (const double size : {40., 2000.}) {
      ++seed;
      expect_right(seed, {.q_rows = 2,
                          .k_rows = seed % 2 == 0 ? 150 : 9000,
                          .heads_q = 8,
                          .dim = dims.dim,
                          .dim_v = dims.dim_v,
                          .type = seed / 2 % 2 == 0 ? DType::bf16 : DType::f16,
                          .sinks = true,
                          .sink_size = size});
      if (HasFatalFailure()) return;
    }
  }
}

// One sequence in the hands of the whole GPU, so that many parts are combined.
TEST_P(AttentionDecodeGpu, LongSequences) {
  for (const AttentionDims& dims : fast_attention_dims) {
    expect_right(5, {.sequences = 1,
                     .q_rows = 1,
                     .k_rows = 20000,
                     .heads_q = 4,
                     .heads_k = 1,
                     .dim = dims.dim,
                     .dim_v = dims.dim_v,
                     .causal = true,
                     .sinks = true});
    expect_right(6, {.sequences = 3,
                     .q_rows = 2,
                     .k_rows = 9000,
                     .heads_q = 6,
                     .dim = dims.dim,
                     .dim_v = dims.dim_v,
                     .type = dims.dim == 64 ? DType::f32 : DType::bf16,
                     .lengths_k = {8999, 3, 5000},
                     .page_rows = 16});
    if (HasFatalFailure()) return;
  }
}

TEST_P(AttentionDecodeGpu, ManySequences) {
  AttentionCase of{
      .sequences = 700, .q_rows = 1, .k_rows = 40, .heads_q = 2, .dim = 64, .dim_v = 64};
  for (int b = 0; b < 700; ++b) of.lengths_k.push_back(b * 7 % 41);
  expect_right(1, of);
}

TEST_P(AttentionDecodeGpu, MoreQueriesThanItIsFor) {
  expect_right(
      1, {.q_rows = 70, .k_rows = 300, .heads_q = 6, .dim = 128, .dim_v = 128, .causal = true});
}

TEST_P(AttentionDecodeGpu, WithoutQueriesOrKeys) {
  expect_right(1, {.q_rows = 0, .dim = 64, .dim_v = 64});
  expect_right(1, {.sequences = 0, .dim = 64, .dim_v = 64});
  expect_right(1, {.k_rows = 0, .dim = 128, .dim_v = 128});
  expect_right(1, {.k_rows = 0, .dim = 128, .dim_v = 128, .page_rows = 8});
  expect_right(1, {.q_rows = 3,
                   .k_rows = 30,
                   .dim = 64,
                   .dim_v = 64,
                   .sinks = true,
                   .lengths_k = {0, 30},
                   .page_rows = 8});
  expect_right(1,
               {.q_rows = 9, .k_rows = 4, .dim = 64, .dim_v = 64, .causal = true, .sinks = true});
}

TEST_P(AttentionDecodeGpu, GivesTheSameBitsEveryTime) {
  for (const DType type : {DType::bf16, DType::f32}) {
    for (const bool batch_invariant : {false, true}) {
      expect_same_bits({.sequences = 3,
                        .q_rows = 2,
                        .k_rows = 5000,
                        .heads_q = 8,
                        .dim = 128,
                        .dim_v = 128,
                        .type = type,
                        .causal = true,
                        .lengths_k = {5000, 17, 3333}},
                       {.kernel = GetParam(), .batch_invariant = batch_invariant},
                       type == DType::f32 ? 20 : 200);
      if (HasFatalFailure()) return;
    }
  }
}

// In the hands of one part and of many.
TEST_P(AttentionDecodeGpu, ANaNInAQueryIsOneInItsResult) {
  const auto is_nan = [](const Strided& array, const std::vector<std::int64_t>& index) {
    return std::isnan(decoded(static_cast<std::uint32_t>(array.bits(index)), array.type()));
  };
  for (const DType type : {DType::bf16, DType::f32}) {
    for (const std::int64_t keys : {40, 20000}) {
      AttentionCall call(4, {.sequences = 1,
                             .q_rows = 1,
                             .k_rows = keys,
                             .heads_q = 8,
                             .dim = 128,
                             .dim_v = 128,
                             .type = type});
      call.q().set_bits({0, 0, 3, 5}, encoded(NAN, type));
      ASSERT_EQ(run(call, {.kernel = GetParam(), .compare = false}), "");
      for (std::int64_t h = 0; h < 8; ++h) {
        EXPECT_EQ(is_nan(call.lse(), {0, h, 0}), h == 3) << "head " << h;
        for (std::int64_t c = 0; c < 128; ++c) {
          ASSERT_EQ(is_nan(call.out(), {0, 0, h, c}), h == 3)
              << keys << " keys, head " << h << ", column " << c;
        }
      }
    }
  }
}

// Sequence b of a tensor.
TensorView only(const TensorView& view, std::int64_t b) {
  std::vector<std::int64_t> shape(view.shape().begin(), view.shape().end());
  shape[0] = 1;
  const std::int64_t begin =
      b * view.strides()[0] * static_cast<std::int64_t>(size_of(view.dtype()));
  return {static_cast<std::byte*>(view.data()) + begin, view.dtype(), shape, view.strides(),
          view.place()};
}

// The rows of a sequence have the same bits alone and among others.
TEST_P(AttentionDecodeGpu, BatchInvariant) {
  const Stream stream(gpu);
  const Pool pool(gpu);
  using Of = std::pair<DType, std::int64_t>;
  for (const auto& [type, page_rows] :
       {Of{DType::bf16, 0}, Of{DType::bf16, 16}, Of{DType::f32, 0}, Of{DType::f32, 16}}) {
    AttentionCall all(9, {.sequences = 5,
                          .q_rows = 2,
                          .k_rows = 6000,
                          .heads_q = 8,
                          .dim = 128,
                          .dim_v = 128,
                          .type = type,
                          .causal = true,
                          .lengths_k = {4000, 1, 700, 6000, 2049},
                          .page_rows = page_rows});
    ASSERT_EQ(run(all, {.kernel = GetParam(), .batch_invariant = true}), "");
    Strided alone(type, {5, 2, 8, 128});
    Copies copies(gpu, stream);
    AttentionOptions call = all.options([&](Strided& array) { return copies.of(array); });
    call.kernel = GetParam();
    call.batch_invariant = true;
    call.pool = &pool;
    call.lse = {};
    const TensorView out = copies.of(alone);
    for (std::int64_t b = 0; b < 5; ++b) {
      AttentionOptions one = call;
      one.q = only(call.q, b);
      one.out = only(out, b);
      one.lengths_k = only(call.lengths_k, b);
      if (page_rows > 0) {
        one.pages = only(call.pages, b);
      } else {
        one.k = only(call.k, b);
        one.v = only(call.v, b);
      }
      attention(one, stream);
    }
    copies.fetch();
    for (std::int64_t i = 0; i < alone.size(); ++i) {
      const std::vector<std::int64_t> index = alone.index(i);
      ASSERT_EQ(alone.bits(index), all.out().bits(index)) << "element " << i;
    }
  }
}

// Without max_q any of these sequences could have all queries: more rows than a grid has blocks.
TEST_P(AttentionDecodeGpu, BatchInvariantWithManySequences) {
  constexpr std::int32_t count = 1 << 15;
  AttentionCase of{.q_rows = count, .k_rows = count + 2100, .heads_q = 8, .heads_k = 1};
  of.cu_q.resize(count + 1);
  std::iota(of.cu_q.begin(), of.cu_q.end(), 0);
  of.cu_k = of.cu_q;
  // The last but one has several chunks.
  for (std::size_t i = count - 1; i < of.cu_k.size(); ++i) of.cu_k[i] += 2100;
  AttentionCall call(10, of);
  ASSERT_EQ(run(call, {.kernel = GetParam(), .batch_invariant = true}), "");
}

TEST_P(AttentionDecodeGpu, WrongLengthsStayInsideTheTensors) {
  AttentionCase of{.q_rows = 30, .k_rows = 2800, .dim = 64, .dim_v = 64};
  of.cu_q = {0, 15, 30};
  of.cu_k = {0, 1400, 2800};
  for (const bool batch_invariant : {false, true}) {
    expect_inside(of, {.kernel = GetParam(), .batch_invariant = batch_invariant});
  }
}

TEST_P(AttentionDecodeGpu, WrongPaddingAndPagesStayInsideTheTensors) {
  AttentionCase of{.q_rows = 15,
                   .k_rows = 280,
                   .dim = 64,
                   .dim_v = 64,
                   .causal = true,
                   .first_k = {0, 3},
                   .lengths_k = {280, 100}};
  for (const DType type : {DType::bf16, DType::f32}) {
    of.type = type;
    for (const std::int64_t page_rows : {0, 16, 5}) {
      of.page_rows = page_rows;
      for (const bool batch_invariant : {false, true}) {
        expect_inside_padding(of, {.kernel = GetParam(), .batch_invariant = batch_invariant});
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(AttentionDecodeGpu, MayBeCaptured) {
  expect_right_in_a_graph({.q_rows = 1,
                           .k_rows = 3000,
                           .heads_q = 8,
                           .dim = 128,
                           .dim_v = 128,
                           .lengths_k = {3000, 40},
                           .page_rows = 16},
                          GetParam());
}

}  // namespace
}  // namespace ps::test
