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
  return figures;
}

}  // namespace ps
