#include "penstock/measure/floor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

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
  best_ = passes_ == 0 ? seconds : std::min(best_, seconds);
  ++passes_;
}

void Floor::merge(const Floor& other) {
  if (other.passes_ == 0) return;
  best_ = passes_ == 0 ? other.best_ : std::min(best_, other.best_);
  passes_ += other.passes_;
}

double Floor::seconds() const {
  if (passes_ == 0) throw std::logic_error("a floor needs at least one pass of the engine alone");
  return best_;
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
