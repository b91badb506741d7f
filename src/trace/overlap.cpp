#include "penstock/trace/overlap.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>

#include "penstock/base/error.h"

namespace ps {
namespace {

constexpr double tolerance = 0.02;

void check_time(std::string_view name, double seconds) {
  // Written so that NaN fails.
  if (!(seconds > 0) || !std::isfinite(seconds)) {
    detail::throw_invalid(name, "a positive, finite number of seconds", fmt::format("{}", seconds));
  }
}

}  // namespace

OverlapFigures overlap_figures(const OverlapTimes& times) {
  check_time("times.sequential", times.sequential);
  check_time("times.pipelined", times.pipelined);
  check_time("times.floor", times.floor);
  check_time("times.ideal", times.ideal);
  OverlapFigures figures;
  figures.efficiency = times.floor / times.pipelined;
  figures.speedup = times.sequential / times.pipelined;
  const double hideable = times.sequential - times.floor;
  if (hideable > tolerance * times.floor) {
    figures.hidden = (times.sequential - times.pipelined) / hideable;
  } else {
    figures.note = "nothing to hide: one engine alone takes as long as the sequential run";
  }

  if (times.floor > times.sequential * (1 + tolerance)) {
    figures.valid = false;
    figures.note =
        fmt::format("invalid: the floor, {:.4g} s, is above the sequential time, {:.4g} s",
                    times.floor, times.sequential);
  } else if (figures.hidden && *figures.hidden > 1 + tolerance) {
    figures.valid = false;
    figures.note = fmt::format("invalid: {:.3f} of what can be hidden was hidden", *figures.hidden);
  } else if (figures.efficiency > 1 + tolerance) {
    figures.valid = false;
    figures.note = fmt::format("invalid: the pipelined run took {:.3f} of its floor",
                               times.pipelined / times.floor);
  }
  return figures;
}

}  // namespace ps
