// Whether the rows of the attention ladder keep what its phases promise; no GPU is needed.
#include "attention/support/verdicts.h"

#include <gtest/gtest.h>

namespace ladder::attention {
namespace {

constexpr double flops = 274.9e9;  // of 32 heads with 4096 rows

Row row(double seconds, const std::string& work = "full 4096") {
  return {.label = "bf16", .work = work, .seconds = seconds, .flops = flops};
}
Row counted(double seconds, double bytes, double share, double hits) {
  Row made = row(seconds);
  made.counters = Counters{.launches = 1,
                           .seconds = seconds,
                           .dram_read_bytes = bytes,
                           .dram_written_bytes = 0,
                           .dram_share = share,
                           .l2_hit_rate = hits};
  return made;
}

RungRows rung(std::string_view name, std::vector<Row> rows) {
  return {{.ladder = "attention", .name = name}, std::move(rows)};
}

const Verdict& find(const std::vector<Verdict>& all, const std::string& part) {
  for (const Verdict& verdict : all) {
    if (verdict.criterion.find(part) != std::string::npos) return verdict;
  }
  throw std::runtime_error("no verdict about " + part);
}

TEST(AttentionVerdicts, WithoutRowsNothingIsJudged) {
  for (const auto& results : {std::vector<RungRows>(), {rung("scalar", {row(0.01, "full 512")})}}) {
    const std::vector<Verdict> all = verdicts(results);
    EXPECT_EQ(all.size(), 7U);
    for (const Verdict& verdict : all) {
      EXPECT_FALSE(verdict.met) << verdict.criterion;
      EXPECT_EQ(verdict.measured, "no row of 'full 4096'");
    }
  }
}

TEST(AttentionVerdicts, TheFirstPhase) {
  const std::vector<Verdict> fast = verdicts({rung("scalar", {row(0.5), row(0.02)})});
  EXPECT_EQ(find(fast, "420 ms").met, true) << "the fastest row counts";
  EXPECT_EQ(find(fast, "0.65 TFLOP/s").met, true);
  EXPECT_NE(find(fast, "0.65 TFLOP/s").measured.find("13.7"), std::string::npos);
  EXPECT_FALSE(find(fast, "phase 2: at least 10").met);
  const std::vector<Verdict> slow = verdicts({rung("scalar", {row(0.43)})});
  EXPECT_EQ(find(slow, "420 ms").met, false);
  EXPECT_EQ(find(slow, "0.65 TFLOP/s").met, false);
}

TEST(AttentionVerdicts, TheSecondPhaseNeedsCounters) {
  const std::vector<Verdict> all = verdicts({rung("scalar", {row(0.4)}), rung("tma", {row(0.02)})});
  EXPECT_EQ(find(all, "phase 2: at least 10").met, true);
  for (const char* part : {"50 %", "L2 hit rate", "as many bytes"}) {
    EXPECT_FALSE(find(all, part).met) << part;
    EXPECT_EQ(find(all, part).measured, "needs --counters") << part;
  }
}

TEST(AttentionVerdicts, TheSecondPhaseByItsFastestRow) {
  const std::vector<Verdict> all =
      verdicts({rung("scalar", {counted(0.4, 100e6, 0.1, 0.9)}),
                rung("double-buffered", {counted(0.03, 500e6, 0.9, 0.9)}),
                rung("pipeline", {counted(0.02, 104e6, 0.55, 0.5)})});
  for (const char* part : {"phase 2: at least 10", "50 %", "L2 hit rate", "as many bytes"}) {
    EXPECT_EQ(find(all, part).met, true) << part;
  }
  const std::vector<Verdict> other = verdicts({rung("scalar", {counted(0.4, 100e6, 0.1, 0.9)}),
                                               rung("tma", {counted(0.03, 106e6, 0.49, 0.61)})});
  for (const char* part : {"phase 2: at least 10", "50 %", "L2 hit rate", "as many bytes"}) {
    EXPECT_EQ(find(other, part).met, false) << part;
  }
  const std::vector<Verdict> fewer = verdicts({rung("scalar", {counted(0.4, 100e6, 0.1, 0.9)}),
                                               rung("tma", {counted(0.02, 94e6, 0.55, 0.5)})});
  EXPECT_EQ(find(fewer, "as many bytes").met, false);
  const std::vector<Verdict> alone = verdicts({rung("tma", {counted(0.03, 106e6, 0.49, 0.61)})});
  EXPECT_FALSE(find(alone, "as many bytes").met);
}

TEST(AttentionVerdicts, TheThirdPhaseIsComparedWithTheSecond) {
  const auto all = verdicts({rung("tma", {row(0.02)}), rung("overlap", {row(0.0004)})});
  EXPECT_EQ(find(all, "phase 3").met, true);
  EXPECT_NE(find(all, "phase 3").measured.find("50.0 x phase 2"), std::string::npos);
  EXPECT_EQ(find(verdicts({rung("tma", {row(0.02)}), rung("wgmma", {row(0.03)})}), "phase 3").met,
            false);
  EXPECT_FALSE(find(verdicts({rung("wgmma", {row(0.03)})}), "phase 3").met);
}

TEST(AttentionVerdicts, RowsThatDoNotCount) {
  Row dropped = row(0.001), causal = row(0.001, "causal 4096"), none = row(0);
  dropped.dropped = "faster than its floor";
  const auto all = verdicts({rung("scalar", {dropped, causal, none})});
  EXPECT_FALSE(find(all, "420 ms").met);
}

}  // namespace
}  // namespace ladder::attention
