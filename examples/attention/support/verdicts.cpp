#include "attention/support/verdicts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "penstock/base/units.h"

namespace ladder::attention {
namespace {

constexpr std::string_view judged_work = "full 4096";

// The fastest row of the named rungs; null if none was measured.
const Row* fastest(const std::vector<RungRows>& results,
                   std::initializer_list<std::string_view> rungs) {
  const Row* best = nullptr;
  for (const RungRows& result : results) {
    if (std::ranges::find(rungs, result.rung.name) == rungs.end()) continue;
    for (const Row& row : result.rows) {
      if (row.work != judged_work || row.seconds <= 0 || !row.dropped.empty()) continue;
      if (best == nullptr || row.seconds < best->seconds) best = &row;
    }
  }
  return best;
}

double tflops(const Row& row) { return row.flops / row.seconds * 1e-12; }

double dram_bytes(const Row& row) {
  return row.counters->dram_read_bytes + row.counters->dram_written_bytes;
}

// `judge` sets `met` and `measured` where there is a row.
template <class JudgeRow>
Verdict about(std::string criterion, const Row* row, bool by_counters, const JudgeRow& judge) {
  Verdict verdict{.criterion = std::move(criterion)};
  if (row == nullptr) {
    verdict.measured = fmt::format("no row of '{}'", judged_work);
  } else if (by_counters && !row->counters) {
    verdict.measured = "needs --counters";
  } else {
    judge(verdict, *row);
  }
  return verdict;
}

void judge_speed(Verdict& verdict, const Row& row, double least) {
  verdict.met = tflops(row) >= least;
  verdict.measured = fmt::format("{:.2f} TFLOP/s", tflops(row));
}

}  // namespace

std::vector<Verdict> verdicts(const std::vector<RungRows>& results) {
  const Row* const first = fastest(results, {"scalar"});
  const Row* const second = fastest(results, {"double-buffered", "pipeline", "tma"});
  const Row* const third =
      fastest(results, {"mma-sync", "wgmma", "roles", "ping-pong", "overlap", "persistent"});
  return {
      about("phase 1: at most 420 ms", first, false,
            [](Verdict& verdict, const Row& row) {
              verdict.met = row.seconds <= 0.42;
              verdict.measured = ps::format_seconds(row.seconds);
            }),
      about("phase 1: at least 0.65 TFLOP/s", first, false,
            [](Verdict& verdict, const Row& row) { judge_speed(verdict, row, 0.65); }),
      about("phase 2: at least 10 TFLOP/s", second, false,
            [](Verdict& verdict, const Row& row) { judge_speed(verdict, row, 10); }),
      about("phase 2: at least 50 % of the DRAM bandwidth", second, true,
            [](Verdict& verdict, const Row& row) {
              verdict.met = row.counters->dram_share >= 0.5;
              verdict.measured = fmt::format("{:.1f} %", 100 * row.counters->dram_share);
            }),
      about("phase 2: L2 hit rate of 40 to 60 %", second, true,
            [](Verdict& verdict, const Row& row) {
              const double rate = row.counters->l2_hit_rate;
              verdict.met = rate >= 0.4 && rate <= 0.6;
              verdict.measured = fmt::format("{:.1f} %", 100 * rate);
            }),
      about("phase 2: as many bytes as phase 1, within 5 %", second, true,
            [&](Verdict& verdict, const Row& row) {
              if (first == nullptr || !first->counters) {
                verdict.measured = "phase 1 was not measured";
                return;
              }
              const double ratio = dram_bytes(row) / dram_bytes(*first);
              verdict.met = std::abs(ratio - 1) <= 0.05;
              verdict.measured =
                  fmt::format("{:.1f} MB, {:.2f} x phase 1", dram_bytes(row) * 1e-6, ratio);
            }),
      about("phase 3: faster than phase 2", third, false,
            [&](Verdict& verdict, const Row& row) {
              if (second == nullptr) {
                verdict.measured = "phase 2 was not measured";
                return;
              }
              verdict.met = row.seconds < second->seconds;
              verdict.measured = fmt::format("{:.1f} TFLOP/s, {:.1f} x phase 2", tflops(row),
                                             second->seconds / row.seconds);
            }),
  };
}

}  // namespace ladder::attention
