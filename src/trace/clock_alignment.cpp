// A sample is off by the time it takes to read the timer, and occasionally by far more, when its
// thread was delayed. So the lines are fitted by medians: the slope is the median of the slopes
// between early and late samples, the offset the median of the remainders. Each multiprocessor has
// its own slope, since they need not run at the same clock rate.
#include "trace/clock_alignment.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "penstock/base/error.h"

namespace ps::detail {
namespace {

constexpr std::size_t fewest_pairs = 3;  // a line through two would hide their error
constexpr std::size_t most_per_side = 256;
constexpr double fastest = 0.02, slowest = 100;  // nanoseconds per clock
constexpr double longest_ns = 1e15;              // between samples: days
constexpr std::uint64_t longest_clocks = std::uint64_t{1} << 43;

struct Point {
  double clock, ns;
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

// At most `most_per_side` of them, evenly spread.
std::vector<Point> some_of(const std::vector<Point>& points) {
  if (points.size() <= most_per_side) return points;
  std::vector<Point> some;
  for (std::size_t i = 0; i < most_per_side; ++i) {
    some.push_back(points[i * points.size() / most_per_side]);
  }
  return some;
}

// Only slopes between the first and the last third: samples close to each other say little, and
// there would be many such slopes.
double slope_of(const std::vector<Point>& points) {
  const double span = points.back().clock - points.front().clock;
  std::vector<Point> early, late;
  for (const Point& point : points) {
    const double at = (point.clock - points.front().clock) / span;
    if (at <= 1.0 / 3) early.push_back(point);
    if (at >= 2.0 / 3) late.push_back(point);
  }
  std::vector<double> slopes;
  for (const Point& to : some_of(late)) {
    for (const Point& from : some_of(early)) {
      slopes.push_back((to.ns - from.ns) / (to.clock - from.clock));
    }
  }
  return median(std::move(slopes));
}

// One clock's samples in order, relative to its first clock value and to the first time of all.
struct Clock {
  std::uint64_t first = 0;
  std::vector<Point> points;
  double extent = 0;  // of the values to convert
};

Clock clock_of(const ClockSamples& samples, std::uint64_t first_ns, unsigned sm) {
  Clock clock;
  std::vector<ClockPair> pairs = samples.pairs;
  std::ranges::sort(pairs, {}, &ClockPair::clock);
  clock.first = pairs.front().clock;
  const std::uint64_t first = std::min(samples.first, clock.first);
  const std::uint64_t last = std::max(samples.last, pairs.back().clock);
  if (last - first > longest_clocks) {
    throw_invalid("buffer", "clocks of one kernel",
                  fmt::format("{} to {} on multiprocessor {}", first, last, sm));
  }
  for (const ClockPair& pair : pairs) {
    clock.points.push_back(
        {static_cast<double>(pair.clock - clock.first), static_cast<double>(pair.ns - first_ns)});
  }
  clock.extent = static_cast<double>(samples.last - samples.first);
  return clock;
}

// The samples must be about as far apart as the values that the slope is used for.
bool has_rate(const Clock& clock) {
  const double span = clock.points.back().clock;
  return span > 0 && span >= clock.extent / 2;
}

double checked_slope(const Clock& clock, unsigned sm) {
  const double slope = slope_of(clock.points);
  const bool plausible = slope >= fastest && slope <= slowest;  // NaN is not
  if (!plausible) {
    throw_invalid("buffer", fmt::format("clocks of {} to {} ns", fastest, slowest),
                  fmt::format("one of {:.4g} ns on multiprocessor {}", slope, sm));
  }
  return slope;
}

std::int64_t smallest_step(std::vector<std::uint64_t> times) {
  std::ranges::sort(times);
  std::uint64_t step = 0;
  for (std::size_t i = 1; i < times.size(); ++i) {
    const std::uint64_t by = times[i] - times[i - 1];
    if (by > 0 && (step == 0 || by < step)) step = by;
  }
  return static_cast<std::int64_t>(step);
}

}  // namespace

ClockAlignment align_clocks(const std::map<unsigned, ClockSamples>& clocks) {
  ClockAlignment alignment;
  std::vector<std::uint64_t> times;
  for (const auto& [sm, samples] : clocks) {
    for (const ClockPair& pair : samples.pairs) times.push_back(pair.ns);
  }
  const auto refuse_none = [&](const char* why) {
    throw_invalid("buffer", "samples of clock and timer at both ends of a multiprocessor's blocks",
                  fmt::format("{} in all, {}", times.size(), why));
  };
  if (times.empty()) refuse_none("so no clock can be aligned");
  const auto [first, last] = std::ranges::minmax(times);
  if (static_cast<double>(last - first) > longest_ns) {
    throw_invalid("buffer", "times of one kernel", fmt::format("{} ns to {} ns", first, last));
  }
  alignment.tick_ns = smallest_step(times);

  std::map<unsigned, Clock> known;
  std::map<unsigned, double> slopes;
  std::vector<double> rates;
  for (const auto& [sm, samples] : clocks) {
    if (samples.pairs.size() < fewest_pairs) continue;
    const Clock& clock = known[sm] = clock_of(samples, first, sm);
    if (!has_rate(clock)) continue;
    rates.push_back(slopes[sm] = checked_slope(clock, sm));
  }
  if (rates.empty()) refuse_none("too few or too close to each other to determine a clock rate");
  const double usual = median(rates);

  std::vector<double> errors;
  for (const auto& [sm, clock] : known) {
    const auto own = slopes.find(sm);
    ClockLine line{
        .clock = clock.first, .ns = 0, .ns_per_clock = own != slopes.end() ? own->second : usual};
    std::vector<double> left;
    for (const Point& point : clock.points) {
      left.push_back(point.ns - line.ns_per_clock * point.clock);
    }
    line.ns = median(left);
    for (const double at : left) errors.push_back(std::abs(at - line.ns));
    alignment.lines[sm] = line;
  }
  alignment.pairs = errors.size();
  alignment.error = {.max_ns = *std::ranges::max_element(errors), .median_ns = median(errors)};
  return alignment;
}

}  // namespace ps::detail
