// The ladder of streamed experts on a GPU: every row has the bits of moe(), or its rung throws.
#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/gpu_test.h"
#include "support/ladder.h"

namespace {

class ExpertsLadder : public ps::test::GpuTest {
 protected:
  std::vector<ladder::RungRows> climbed(std::vector<std::int64_t> shape) const {
    ladder::Context context({.device = gpu, .quick = true, .shape = std::move(shape)});
    std::vector<ladder::Rung> rungs = ladder::rungs();
    std::erase_if(rungs, [](const ladder::Rung& rung) { return rung.ladder != "experts"; });
    return climb(context, rungs, [](const auto&, double) {});
  }
};

// A row has a time, or says why it has none: only rows that nothing could be measured for, or that
// were faster than their floor.
void expect_rows(const std::vector<ladder::RungRows>& results) {
  ASSERT_EQ(results.size(), 9u);
  for (const auto& [rung, rows] : results) {
    SCOPED_TRACE(rung.name);
    ASSERT_FALSE(rows.empty());
    for (const ladder::Row& row : rows) {
      SCOPED_TRACE(row.label);
      if (row.seconds == 0) {
        EXPECT_NE(row.note + row.dropped, "");
      } else {
        EXPECT_GT(row.seconds, 0);
      }
    }
  }
}

TEST_F(ExpertsLadder, EveryRowHasTheBitsOfMoe) { expect_rows(climbed({})); }

// Tokens that fill no tile, sizes that are not whole steps, experts without tokens.
TEST_F(ExpertsLadder, OtherShapesToo) {
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{1, 200, 136, 9, 2}, {70, 1032, 72, 33, 3}}) {
    SCOPED_TRACE(testing::Message() << shape[0] << " tokens");
    expect_rows(climbed(shape));
  }
}

// What a rung shows can be seen in its rows.
TEST_F(ExpertsLadder, RowsDifferInWhatTheirRungIsAbout) {
  for (const auto& [rung, rows] : climbed({})) {
    std::set<std::string> labels;
    for (const ladder::Row& row : rows) labels.insert(row.label);
    EXPECT_EQ(labels.size(), rows.size()) << rung.name;
    if (rung.name != "cached") continue;
    ASSERT_EQ(rows.size(), 4u);
    EXPECT_EQ(rows[0].label.substr(0, 2), "0 ") << rows[0].label;
  }
}

}  // namespace
