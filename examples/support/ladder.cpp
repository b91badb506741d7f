#include "support/ladder.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "penstock/base/error.h"

namespace ladder {
namespace {

void check_device(const Context& context, const std::vector<Rung>& rungs) {
  const auto of_kernels =
      std::ranges::find_if(rungs, [](const Rung& rung) { return rung.machine != nullptr; });
  if (of_kernels == rungs.end() || context.on_gpu()) return;
  const std::string why = ps::Device::why_no_gpu();
  throw ps::Unsupported(fmt::format("the ladder '{}' needs a GPU: {}", of_kernels->ladder,
                                    why.empty() ? "the device asked for is the CPU" : why));
}

}  // namespace

std::vector<RungRows> climb(Context& context, const std::vector<Rung>& rungs,
                            const std::function<void(const Rung&, double fraction)>& starting) {
  check_device(context, rungs);
  std::vector<RungRows> results;
  std::map<std::string, double> first_seconds;
  for (const Rung& rung : rungs) {
    starting(rung, static_cast<double>(results.size()) / static_cast<double>(rungs.size()));
    context.begin_rung();
    std::vector<Row> rows = rung.run(context);
    for (Row& row : rows) {
      if (row.work.empty()) row.work = rung.name;
      if (row.seconds <= 0 || !row.dropped.empty()) continue;
      const double first = first_seconds.emplace(row.work, row.seconds).first->second;
      if (!row.speedup) row.speedup = first / row.seconds;
    }
    results.push_back({rung, std::move(rows)});
  }
  return results;
}

}  // namespace ladder
