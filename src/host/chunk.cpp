#include "penstock/host/chunk.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "penstock/base/checked.h"
#include "penstock/base/error.h"

namespace ps {
namespace {

void check_stages(std::span<const EngineCost> stages) {
  if (stages.empty()) detail::throw_invalid("stages", "at least one", "none");
  for (const EngineCost& stage : stages) {
    if (!(stage.bytes_per_second > 0) || !std::isfinite(stage.bytes_per_second)) {
      detail::throw_invalid("bytes_per_second", "a finite rate above 0",
                            std::to_string(stage.bytes_per_second));
    }
    if (!(stage.overhead_seconds >= 0) || !std::isfinite(stage.overhead_seconds)) {
      detail::throw_invalid("overhead_seconds", "a finite time of at least 0",
                            std::to_string(stage.overhead_seconds));
    }
  }
}

double seconds_of(const EngineCost& stage, std::size_t bytes) {
  return stage.overhead_seconds + static_cast<double>(bytes) / stage.bytes_per_second;
}

}  // namespace

EngineCost fit_cost(std::span<const CostSample> samples) {
  // Weighted by 1 / seconds^2, so that relative errors count alike at every size.
  double w = 0, wx = 0, wy = 0, wxx = 0, wxy = 0;
  for (const CostSample& sample : samples) {
    if (!(sample.seconds > 0) || sample.bytes == 0) {
      detail::throw_invalid(
          "samples", "positive sizes and times",
          std::to_string(sample.bytes) + " bytes in " + std::to_string(sample.seconds) + " s");
    }
    const double weight = 1 / (sample.seconds * sample.seconds);
    const auto x = static_cast<double>(sample.bytes);
    w += weight;
    wx += weight * x;
    wy += weight * sample.seconds;
    wxx += weight * x * x;
    wxy += weight * x * sample.seconds;
  }
  const double spread = w * wxx - wx * wx;
  if (samples.size() < 2 || !(spread > 1e-9 * w * wxx)) {
    detail::throw_invalid("samples", "at least two different sizes",
                          std::to_string(samples.size()) + " samples");
  }
  double slope = (w * wxy - wx * wy) / spread;
  double overhead = (wy - slope * wx) / w;
  if (overhead < 0) {
    overhead = 0;
    slope = wxy / wxx;
  }
  if (!(slope > 0)) {
    detail::throw_invalid("samples", "times that grow with the size", "times that do not");
  }
  return {overhead, 1 / slope};
}

double predict_seconds(std::size_t total, std::size_t chunk, std::span<const EngineCost> stages) {
  check_stages(stages);
  if (total == 0) return 0;
  if (chunk == 0) detail::throw_invalid("chunk", "at least 1 byte", "0");
  chunk = std::min(chunk, total);
  double sum = 0, slowest = 0;
  for (const EngineCost& stage : stages) {
    const double time = seconds_of(stage, chunk);
    sum += time;
    slowest = std::max(slowest, time);
  }
  const double chunks = static_cast<double>(total) / static_cast<double>(chunk);
  return chunks * slowest + (sum - slowest);
}

ChunkChoice choose_chunk(std::size_t total, std::span<const EngineCost> stages,
                         ChunkOptions options) {
  check_stages(stages);
  if (total == 0) detail::throw_invalid("total", "at least 1 byte", "0");
  if (options.granularity == 0) detail::throw_invalid("granularity", "at least 1 byte", "0");
  if (options.minimum_chunks == 0) detail::throw_invalid("minimum_chunks", "at least 1", "0");
  const std::size_t grain = options.granularity;
  std::size_t most = options.maximum_bytes == 0 ? total : std::min(total, options.maximum_bytes);
  most = std::min(most, std::max(grain, total / options.minimum_chunks));

  // The time is convex in the chunk between changes of the slowest stage: look near every
  // candidate's minimum and at the ends, and keep the best.
  double best_time = 0;
  std::size_t best = 0;
  const auto consider = [&](double bytes) {
    auto chunk =
        static_cast<std::size_t>(std::min(std::max(bytes, 1.0), static_cast<double>(most)));
    chunk = chunk < grain ? std::min(grain, most) : chunk / grain * grain;
    const double time = predict_seconds(total, chunk, stages);
    if (best == 0 || time < best_time) {
      best = chunk;
      best_time = time;
    }
  };
  consider(static_cast<double>(most));
  for (const EngineCost& slowest : stages) {
    double others = 0;  // seconds per byte of fill and drain
    for (const EngineCost& stage : stages) others += 1 / stage.bytes_per_second;
    others -= 1 / slowest.bytes_per_second;
    if (!(others > 0)) continue;
    const double optimum =
        std::sqrt(static_cast<double>(total) * slowest.overhead_seconds / others);
    consider(optimum);
    consider(optimum + static_cast<double>(grain));
  }
  // Where two stages are equally slow, one is the slowest below that size and the other above it.
  for (const EngineCost& a : stages) {
    for (const EngineCost& b : stages) {
      const double crossing = (b.overhead_seconds - a.overhead_seconds) /
                              (1 / a.bytes_per_second - 1 / b.bytes_per_second);
      if (!std::isfinite(crossing) || crossing <= 0) continue;
      consider(crossing);
      consider(crossing + static_cast<double>(grain));
    }
  }
  return {best, ceil_div(total, best), best_time};
}

}  // namespace ps
