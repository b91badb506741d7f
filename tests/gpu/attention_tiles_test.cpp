// attention() on a GPU with so many tiles that every thread block of the sm90 kernels computes
// several of them: some rows against the formula in f64, all of them against the portable kernels.
#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gpu/attention_gpu.h"
#include "ops/attention/sm90.h"
#include "ops/attention/sm90_blocks.h"
#include "penstock/ops/attention.h"

namespace ps::test {
namespace {

class AttentionTilesGpu : public AttentionGpuTest,
                          public testing::WithParamInterface<AttentionDims> {
 protected:
  void SetUp() override {
    AttentionGpuTest::SetUp();
    if (!IsSkipped() && !is_hopper()) GTEST_SKIP() << "needs compute capability 9.0";
  }

  // More than two per thread block.
  std::int64_t least_tiles() const {
    return std::max<std::int64_t>(300, 2 * gpu.capabilities().multiprocessors + 1);
  }

  // A call with the head dimensions of the test and 8 query heads per head of k. Types alternate.
  AttentionCase make(std::int64_t q_rows, std::int64_t k_rows, bool causal) {
    return {.q_rows = q_rows,
            .k_rows = k_rows,
            .heads_q = 16,
            .heads_k = 2,
            .dim = GetParam().dim,
            .dim_v = GetParam().dim_v,
            .type = ++made_ % 2 == 0 ? DType::f16 : DType::bf16,
            .causal = causal,
            .sampled = true};
  }
  // For the kernels without options: with as many sequences as give enough tiles.
  AttentionCase make_plain(std::int64_t q_rows, std::int64_t k_rows, bool causal) {
    AttentionCase of = make(q_rows, k_rows, causal);
    const std::int64_t tiles = tiles_of_head(q_rows, is_tall(q_rows)) * of.heads_q;
    of.sequences = (least_tiles() + tiles - 1) / tiles;
    return of;
  }
  // For those with options, which have tiles of 128 queries: sequences of these lengths, one after
  // the other.
  AttentionCase make_listed(const std::vector<std::int32_t>& queries,
                            const std::vector<std::int32_t>& keys, bool causal) {
    AttentionCase of = make(0, 0, causal);
    of.sequences = static_cast<std::int64_t>(queries.size());
    of.cu_q = ends(queries);
    of.cu_k = ends(keys);
    of.q_rows = of.cu_q.back();
    of.k_rows = of.cu_k.back();
    return of;
  }
  AttentionCase make_mixed(bool causal) {
    AttentionCase of = make_listed(mixed_queries, mixed_keys, causal);
    of.window_left = 100;
    if (!causal) of.window_right = 60;
    return of;
  }

  void expect_right(const AttentionCase& of) const {
    std::int64_t tiles = 0;
    if (of.cu_q.empty()) {
      const bool tall = of.lengths_k.empty() && is_tall(of.q_rows);
      tiles = of.sequences * tiles_of_head(of.q_rows, tall);
    }
    for (std::size_t b = 0; b + 1 < of.cu_q.size(); ++b) {
      tiles += tiles_of_head(of.cu_q[b + 1] - of.cu_q[b], false);
    }
    ASSERT_GE(tiles * of.heads_q, least_tiles());
    const AttentionCall made(1, of);
    AttentionCall found = made, wanted = made;
    ASSERT_EQ(run(found, {.kernel = AttentionKernel::sm90}), "");
    ASSERT_EQ(run(wanted, {.kernel = AttentionKernel::portable, .compare = false}), "");
    ASSERT_EQ(found.differs(wanted), "");
  }

  // Whether the kernels without options have tiles of 192 queries.
  static bool is_tall(std::int64_t q_rows) {
    return GetParam().dim == 64 && detail::attention_tall(q_rows);
  }
  static std::int64_t tiles_of_head(std::int64_t queries, bool tall) {
    const std::int64_t rows = tall ? 192 : 128;
    return (queries + rows - 1) / rows;
  }
  static std::vector<std::int32_t> ends(const std::vector<std::int32_t>& lengths) {
    std::vector<std::int32_t> sums{0};
    for (const std::int32_t length : lengths) sums.push_back(sums.back() + length);
    return sums;
  }

  // 20 tiles per head.
  const std::vector<std::int32_t> mixed_queries{0,   1,   300, 64, 129, 40,  290,
                                                128, 200, 17,  65, 256, 130, 0};
  const std::vector<std::int32_t> mixed_keys{5,   200, 300, 0,  77,  290, 129,
                                             128, 1,   300, 64, 256, 130, 9};

 private:
  std::uint32_t made_ = 0;
};

std::string dims_name(const testing::TestParamInfo<AttentionDims>& dims) {
  return std::to_string(dims.param.dim) + "_" + std::to_string(dims.param.dim_v);
}
INSTANTIATE_TEST_SUITE_P(Dims, AttentionTilesGpu, testing::ValuesIn(fast_attention_dims),
                         dims_name);

TEST_P(AttentionTilesGpu, WithoutOptions) {
  std::set<std::pair<bool, bool>> instances;
  for (const bool causal : {false, true}) {
    for (const auto& [q, k] : {std::pair{150, 290}, {250, 250}, {290, 290}, {150, 70}}) {
      expect_right(make_plain(q, k, causal));
      if (HasFatalFailure()) return;
      const detail::AttentionReach reach{.right = causal ? 0 : detail::attention_unlimited};
      const bool small_blocks =
          GetParam().dim == 256 && detail::attention_small_blocks(q, k, reach);
      instances.emplace(causal, is_tall(q) || small_blocks);
    }
  }
  // Head dimensions 64 and 256 have two kernels.
  EXPECT_EQ(instances.size(), GetParam().dim == 64 || GetParam().dim == 256 ? 4U : 2U);
}

TEST_P(AttentionTilesGpu, SequencesOfSeveralLengths) {
  for (const bool causal : {false, true}) {
    expect_right(make_mixed(causal));
    if (HasFatalFailure()) return;
  }
}

TEST_P(AttentionTilesGpu, KeysOfSeveralLengths) {
  for (const bool causal : {false, true}) {
    AttentionCase of = make(150, 290, causal);
    of.sequences = 10;
    of.window_left = 150;
    of.softcap = 20;
    of.sinks = true;
    of.first_k = {0, 129, 5, 0, 0, 64, 289, 100, 0, 31};
    of.lengths_k = {290, 129, 70, 0, 1, 200, 290, 290, 128, 257};
    of.heads_first = true;
    expect_right(of);
    if (HasFatalFailure()) return;
  }
}

TEST_P(AttentionTilesGpu, KeysInPages) {
  for (const bool causal : {false, true}) {
    for (const std::int64_t page_rows : {16, 128}) {
      AttentionCase of = make(150, 290, causal);
      of.sequences = 10;
      of.sinks = true;
      of.sink_type = DType::bf16;
      of.lengths_k = {290, 129, 70, 0, 1, 200, 64, 256, 128, 257};
      of.page_rows = page_rows;
      expect_right(of);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(AttentionTilesGpu, QueriesOfSeveralLengthsAndKeysInPages) {
  for (const bool causal : {false, true}) {
    AttentionCase of = make_listed(mixed_queries, mixed_keys, causal);
    of.cu_k.clear();
    of.k_rows = 300;
    of.lengths_k = mixed_keys;
    of.page_rows = 64;
    of.softcap = 20;
    expect_right(of);
    if (HasFatalFailure()) return;
  }
}

// Small enough for the tools that are slow (scripts/gpu_check.sh).
TEST_P(AttentionTilesGpu, FewRows) {
  std::vector<std::int32_t> queries, keys;
  for (std::int32_t b = 0; b < 21; ++b) {
    queries.push_back(1 + b * 7 % 20);
    keys.push_back(b * 61 % 200);
  }
  for (const bool causal : {false, true}) {
    expect_right(make_plain(20, 200, causal));
    expect_right(make_listed(queries, keys, causal));
    if (HasFatalFailure()) return;
  }
}

TEST_P(AttentionTilesGpu, LongSequences) {
  for (const bool causal : {false, true}) {
    AttentionCase of = make(4224, 4224, causal);
    const std::int64_t tiles = tiles_of_head(of.q_rows, is_tall(of.q_rows));
    of.sequences = 1;
    of.heads_q = (least_tiles() + 2 * tiles - 1) / (2 * tiles) * 2;
    expect_right(of);
    if (HasFatalFailure()) return;
  }
}

TEST_P(AttentionTilesGpu, GivesTheSameBitsEveryTime) {
  for (const AttentionCase& of :
       {make_plain(150, 290, false), make_plain(290, 290, true), make_mixed(true)}) {
    expect_same_bits(of, {.kernel = AttentionKernel::sm90}, 60, true);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace ps::test
