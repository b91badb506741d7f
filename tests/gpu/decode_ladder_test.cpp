// Every rung of the decode ladder is right, whatever the lengths, groups and pages.
#include <algorithm>
#include <random>
#include <string_view>
#include <vector>

#include "decode/support/rung.h"
#include "decode/support/tensors.h"
#include "gpu/gpu_test.h"
#include "support/ladder.h"

namespace {

using ladder::decode::Kernels;
using ladder::decode::Problem;
using ladder::decode::Shape;
using ladder::decode::Tensors;
using ladder::decode::usual_scale;
using ladder::decode::Variant;

// With this scale a few keys have most of the probability, and maxima grow on the way.
constexpr float large_scale = 2;

class DecodeLadder : public ps::test::GpuTest {
 protected:
  // Runs every rung that `chosen` wants, all variants of it that read pages or that do not, twice,
  // checks results against sums in double precision, and compares the bits of the two runs.
  template <class Chosen>
  void expect_right_if(const Shape& shape, const Chosen& chosen) {
    const ps::Stream stream(gpu);
    const Tensors tensors(stream, shape);
    std::size_t ran = 0;
    for (const Kernels& kernels : ladder::decode::all_kernels()) {
      if (!chosen(kernels)) continue;
      for (const Variant& variant : kernels.variants()) {
        if (variant.paged != shape.paged) continue;
        ++ran;
        for (const float scale : {usual_scale, large_scale}) {
          SCOPED_TRACE(::testing::Message()
                       << kernels.name << " (" << variant.label << ") with " << shape.lengths.size()
                       << " sequences, the first of " << shape.lengths[0] << " keys, "
                       << shape.heads_q << " and " << shape.heads_k << " heads, "
                       << (shape.paged ? "pages of " : "regions of ") << shape.page_rows
                       << " rows, scale " << scale);
          const Problem p = tensors.problem(scale);
          std::vector<float> results[2];
          for (std::vector<float>& result : results) {
            tensors.poison();
            variant.run(p, stream);
            EXPECT_NO_THROW(tensors.check(p));
            result = tensors.result();
          }
          EXPECT_EQ(results[0], results[1]) << "sums have a fixed order";
        }
      }
    }
    EXPECT_GT(ran, 0u);
  }
  // With pages and without.
  void expect_right(Shape shape) {
    for (const bool paged : {false, true}) {
      shape.paged = paged;
      expect_right_if(shape, [](const Kernels&) { return true; });
    }
  }
};

TEST_F(DecodeLadder, HasFiveRungs) { EXPECT_EQ(ladder::decode::all_kernels().size(), 5u); }

TEST_F(DecodeLadder, LengthsAroundTheBlockOfKeys) {
  for (const int length : {1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 192, 193, 257}) {
    expect_right({.lengths = {length}, .heads_q = 8, .heads_k = 2});
  }
}

TEST_F(DecodeLadder, GroupsOfEverySize) {
  for (const unsigned group : {1u, 2u, 3u, 7u, 8u, 9u, 15u, 16u}) {
    expect_right({.lengths = {300, 90}, .heads_q = 3 * group, .heads_k = 3});
  }
}

TEST_F(DecodeLadder, SequencesOfSeveralLengths) {
  expect_right({.lengths = {1000, 1, 64, 65, 2000, 130}});
  expect_right({.lengths = {1, 1, 1, 30000, 1, 1}, .heads_q = 8, .heads_k = 1});
}

TEST_F(DecodeLadder, SequencesWithoutKeys) {
  expect_right({.lengths = {0}});
  expect_right({.lengths = {0, 500, 0, 0, 70, 0}, .heads_q = 16, .heads_k = 2});
}

// Fewer blocks of keys than parts, and many more; and more sequences than a warp has threads.
TEST_F(DecodeLadder, FewAndManySequences) {
  expect_right({.lengths = {100, 100}, .heads_q = 2, .heads_k = 1});
  expect_right({.lengths = std::vector<int>(100, 700), .heads_q = 16, .heads_k = 4});
  std::vector<int> rising(77);
  for (int i = 0; i < 77; ++i) rising[static_cast<std::size_t>(i)] = 13 * i;
  expect_right({.lengths = rising, .heads_q = 8, .heads_k = 2});
}

TEST_F(DecodeLadder, PagesOfEverySize) {
  for (const unsigned rows : {1u, 8u, 16u, 24u, 64u, 100u, 128u, 1024u}) {
    expect_right({.lengths = {700, 64, 333}, .heads_q = 8, .heads_k = 2, .page_rows = rows});
  }
}

TEST_F(DecodeLadder, PagesThatDoNotExistAreZeros) {
  for (const unsigned every : {1u, 2u, 3u, 5u}) {
    for (const unsigned rows : {16u, 64u, 100u}) {
      expect_right_if({.lengths = {700, 64, 333},
                       .heads_q = 8,
                       .heads_k = 2,
                       .paged = true,
                       .page_rows = rows,
                       .bad_every = every},
                      [](const Kernels&) { return true; });
    }
  }
}

TEST_F(DecodeLadder, RandomShapes) {
  const unsigned seed = ::testing::UnitTest::GetInstance()->random_seed();
  SCOPED_TRACE(::testing::Message() << "--gtest_random_seed=" << seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 8; ++i) {
    Shape shape{.lengths = std::vector<int>(1 + random() % 12)};
    for (int& length : shape.lengths) length = static_cast<int>(random() % 3000);
    shape.heads_k = 1 + static_cast<unsigned>(random() % 4);
    shape.heads_q = shape.heads_k * (1 + static_cast<unsigned>(random() % 16));
    shape.page_rows = 1 + static_cast<unsigned>(random() % 200);
    expect_right(shape);
  }
}

// The check itself: one element off, one missing, one too many.
TEST_F(DecodeLadder, ChecksFindWhatIsWrong) {
  const ps::Stream stream(gpu);
  const Tensors tensors(stream, {.lengths = {150, 70}, .heads_q = 8, .heads_k = 2});
  const Problem p = tensors.problem();
  const auto& all = ladder::decode::all_kernels();
  const auto first = std::ranges::find(all, std::string_view("one-block"), &Kernels::name);
  ASSERT_NE(first, all.end());
  EXPECT_ANY_THROW(tensors.check(p)) << "nothing was written";
  first->variants()[0].run(p, stream);
  EXPECT_NO_THROW(tensors.check(p));
  EXPECT_ANY_THROW(tensors.check(tensors.problem(large_scale))) << "another scale";
  const ps::Place place = gpu.place();
  auto* const out = static_cast<std::byte*>(p.out);
  ps::fill({out + 2 * 1000, 2, place}, 0x40, stream);
  EXPECT_ANY_THROW(tensors.check(p)) << "an element is wrong";
  ps::fill({out + 2 * 1000, 2, place}, 0xff, stream);
  EXPECT_ANY_THROW(tensors.check(p)) << "an element is missing";
  first->variants()[0].run(p, stream);
  ps::fill({out - 2, 2, place}, 0, stream);
  EXPECT_ANY_THROW(tensors.check(p)) << "something was written before the result";
}

TEST_F(DecodeLadder, IsClimbed) {
  ladder::Context context({.device = gpu, .quick = true});
  std::vector<ladder::Rung> rungs = ladder::rungs();
  std::erase_if(rungs, [](const ladder::Rung& rung) { return rung.ladder != "decode"; });
  ASSERT_EQ(rungs.size(), 5u);
  for (const auto& [rung, rows] : climb(context, rungs, [](const auto&, double) {})) {
    ASSERT_FALSE(rows.empty()) << rung.name;
    std::size_t number = 0;
    for (const ladder::Row& row : rows) {
      SCOPED_TRACE(::testing::Message() << rung.name << ": " << row.label << ", " << row.work);
      EXPECT_EQ(row.number, number++);
      EXPECT_GT(row.seconds, 0);
      EXPECT_GT(row.efficiency, 0) << "share of the plain read";
      if (rung.name == "library") continue;
      ASSERT_TRUE(row.use);
      EXPECT_GT(row.use->registers, 0);
      EXPECT_GE(row.use->blocks, 1) << "blocks of threads on a multiprocessor";
    }
  }
}

// As --counters starts the program under ncu.
TEST_F(DecodeLadder, OneRowIsProfiledAlone) {
  std::vector<ladder::Rung> rungs = ladder::rungs();
  std::erase_if(rungs, [](const ladder::Rung& rung) {
    return rung.ladder != "decode" || rung.name != "equal-cuts";
  });
  ASSERT_EQ(rungs.size(), 1u);
  const auto climb_for = [&](std::size_t row) {
    ladder::Context context({.device = gpu, .quick = true, .profile_row = row});
    climb(context, rungs, [](const auto&, double) {});
  };
  EXPECT_THROW(climb_for(0), ladder::Profiled);
  EXPECT_THROW(climb_for(1), ladder::Profiled);
  EXPECT_NO_THROW(climb_for(2)) << "there is no such row";
}

// For compute-sanitizer (scripts/gpu_check.sh).
TEST_F(DecodeLadder, SmallSizes) {
  for (const bool paged : {false, true}) {
    expect_right_if({.lengths = {200, 0, 65},
                     .heads_q = 8,
                     .heads_k = 2,
                     .paged = paged,
                     .page_rows = 48,
                     .bad_every = 4},
                    [](const Kernels& kernels) { return kernels.name != "library"; });
  }
}

}  // namespace
