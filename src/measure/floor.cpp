#include "penstock/measure/floor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string_view>

#include "penstock/base/error.h"
#include "penstock/base/units.h"

namespace ps {
namespace {

void check_time(std::string_view argument, double seconds) {
  // Written so that NaN fails.
  if (!(seconds > 0) || !std::isfinite(seconds)) {
    detail::throw_invalid(argument, "a positive, finite number of seconds",
                          fmt::format("{}", seconds));
  }
}

}  // namespace

void Floor::add(double seconds) {
  check_time("seconds", seconds);
  passes_.push_back(seconds);
}

void Floor::merge(const Floor& other) {
  passes_.insert(passes_.end(), other.passes_.begin(), other.passes_.end());
}

double Floor::seconds() const {
  if (passes_.empty())
    throw std::logic_error("a floor needs at least one pass of the engine alone");
  return *std::ranges::min_element(passes_);
}

double Floor::spread() const {
  const double best = seconds();
  return median(passes_) / best;
}

FloorVerdict judge_by_floor(double seconds, double floor_seconds) {
  check_time("seconds", seconds);
  check_time("floor_seconds", floor_seconds);
  FloorVerdict verdict{.over_floor = seconds / floor_seconds, .reason = {}};
  if (verdict.over_floor < least_over_floor) {
    verdict.reason = fmt::format(
        "took {}, {:.3f} x its floor of {}; a row below {} x its floor is a measuring error",
        format_seconds(seconds), verdict.over_floor, format_seconds(floor_seconds),
        least_over_floor);
  }
  return verdict;
}

}  // namespace ps
