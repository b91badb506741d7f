#include "penstock/host/chunk.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/base/units.h"

namespace {

TEST(Chunk, FollowsTheSquareRootLaw) {
  const double overhead = 5e-6, bandwidth = 50e9;
  const std::vector<ps::EngineCost> stages(3, {overhead, bandwidth});
  const std::size_t total = 2 * ps::GiB;
  const auto choice = ps::choose_chunk(total, stages);
  const double law = std::sqrt(static_cast<double>(total) * overhead * bandwidth / 2);
  EXPECT_NEAR(static_cast<double>(choice.chunk_bytes), law, 0.02 * law);
  EXPECT_EQ(choice.chunks, (total + choice.chunk_bytes - 1) / choice.chunk_bytes);
}

TEST(Chunk, NoCandidateIsBetter) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> overhead(0, 2e-5), rate(1e9, 1e11);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<ps::EngineCost> stages(1 + random() % 4);
    for (auto& stage : stages) stage = {overhead(random), rate(random)};
    const std::size_t total = ps::MiB * (1 + random() % 4000);
    const auto choice = ps::choose_chunk(total, stages);
    const std::size_t grain = ps::ChunkOptions{}.granularity;
    for (std::size_t step = 1; step * grain <= total; step = step * 9 / 8 + 1) {
      const std::size_t chunk = step * grain;
      ASSERT_LE(choice.predicted_seconds, ps::predict_seconds(total, chunk, stages) * (1 + 1e-12))
          << "trial " << trial << ", chunk " << chunk << " beats " << choice.chunk_bytes;
    }
  }
}

TEST(Chunk, OneStageIsNotCut) {
  const std::array<ps::EngineCost, 1> stage{{{1e-5, 1e10}}};
  EXPECT_EQ(ps::choose_chunk(ps::GiB, stage).chunk_bytes, ps::GiB);
}

TEST(Chunk, RespectsItsBounds) {
  const std::vector<ps::EngineCost> stages(3, {1e-5, 50e9});
  EXPECT_GE(ps::choose_chunk(ps::GiB, stages, {.minimum_chunks = 500}).chunks, 500U);
  EXPECT_LE(ps::choose_chunk(ps::GiB, stages, {.maximum_bytes = ps::MiB}).chunk_bytes, ps::MiB);
  const auto aligned = ps::choose_chunk(ps::GiB, stages, {.granularity = 3 * ps::MiB});
  EXPECT_EQ(aligned.chunk_bytes % (3 * ps::MiB), 0U);
  EXPECT_EQ(ps::choose_chunk(100, stages).chunk_bytes, 100U);  // less than the granularity
}

TEST(Chunk, FitFindsOverheadAndRate) {
  std::vector<ps::CostSample> samples;
  for (std::size_t bytes = ps::MiB; bytes <= 64 * ps::MiB; bytes *= 2) {
    samples.push_back({bytes, 7e-6 + static_cast<double>(bytes) / 55e9});
  }
  const auto cost = ps::fit_cost(samples);
  EXPECT_NEAR(cost.overhead_seconds, 7e-6, 1e-8);
  EXPECT_NEAR(cost.bytes_per_second, 55e9, 1e7);
}

TEST(Chunk, RefusesNonsense) {
  const std::vector<ps::EngineCost> stages(2, {1e-6, 1e9});
  EXPECT_THROW(ps::choose_chunk(0, stages), ps::InvalidArgument);
  EXPECT_THROW(ps::choose_chunk(1, {}), ps::InvalidArgument);
  EXPECT_THROW(ps::choose_chunk(1, stages, {.minimum_chunks = 0}), ps::InvalidArgument);
  EXPECT_THROW(ps::predict_seconds(1, 0, stages), ps::InvalidArgument);
  for (const double bad : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    const std::array<ps::EngineCost, 1> stage{{{0, bad}}};
    EXPECT_THROW(ps::predict_seconds(1, 1, stage), ps::InvalidArgument) << bad;
  }
  const std::array<ps::CostSample, 2> same{{{1024, 1e-6}, {1024, 2e-6}}};
  EXPECT_THROW(ps::fit_cost(same), ps::InvalidArgument);
}

}  // namespace
