#include "measure/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "penstock/base/error.h"
#include "penstock/measure/timing.h"

namespace ps::detail {

std::size_t repetition_bytes(const SamplingPlan& plan, std::size_t warm_bytes,
                             double warm_seconds) {
  const double each = plan.seconds / plan.repetitions;
  const double fits = static_cast<double>(warm_bytes) * each / warm_seconds;
  std::size_t bytes = plan.most_bytes;
  if (fits < static_cast<double>(plan.most_bytes)) bytes = static_cast<std::size_t>(fits);
  bytes -= bytes % plan.granule;
  return std::max(bytes, plan.least_bytes);
}

Rate sample(const SamplingPlan& plan, int counted, const Move& move, const Tick& tick) {
  const auto timed = [&](std::size_t bytes) {
    const double seconds = move(bytes);
    if (!(seconds > 0) || !std::isfinite(seconds)) {
      throw Unsupported(
          fmt::format("moving {} bytes took {} s by this machine's clock; ceilings "
                      "cannot be measured with it",
                      bytes, seconds));
    }
    return seconds;
  };

  tick(0);
  timed(plan.least_bytes);  // pays for first touches
  const double warm_seconds = timed(plan.least_bytes);
  const std::size_t bytes = repetition_bytes(plan, plan.least_bytes, warm_seconds);

  std::vector<double> seconds;
  for (int i = 0; i < plan.repetitions; ++i) {
    tick(static_cast<double>(i) / plan.repetitions);
    seconds.push_back(timed(bytes));
  }
  const std::size_t counted_bytes = bytes * static_cast<std::size_t>(counted);
  return {.bytes_per_second = static_cast<double>(counted_bytes) / median(std::move(seconds)),
          .bytes = counted_bytes,
          .repetitions = plan.repetitions,
          .note = {}};
}

}  // namespace ps::detail
