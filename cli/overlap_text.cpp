#include "overlap_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "penstock/base/units.h"
#include "table.h"

namespace ps::cli {
namespace {

// Figures that follow from a time that cannot be true would mislead: then the times stand alone.
std::string busy_text(const OverlapTimes& times, int tries) {
  return fmt::format(
      "  The machine is too busy to measure: {}, the pipelined run was faster ({}) than its\n"
      "  slowest part alone ({}), which is impossible. Run it again on a quiet machine.\n",
      tries == 1 ? "this time" : fmt::format("in {} tries", tries), format_seconds(times.pipelined),
      format_seconds(times.floor));
}

// The time of an engine alone varies this much only if other programs use the machine.
constexpr double most_spread = 1.5;

}  // namespace

std::string figures_text(const OverlapTimes& times, const OverlapFigures& figures,
                         const FloorVerdict& verdict, int tries, double spread) {
  if (!verdict.kept()) return busy_text(times, tries);
  Table table({Align::left, Align::right, Align::left});
  const auto seconds = [](double value) { return format_seconds(value); };
  table.row({"floor", seconds(times.floor),
             "the slowest engine or shared link alone, its best pass: cannot be beaten"});
  table.row({"ideal", seconds(times.ideal), "the floor plus filling and draining at this chunk"});
  table.row(
      {"x floor", fmt::format("{:.3f}", verdict.over_floor), "time of the pipelined run / floor"});
  table.row({"hidden", figures.hidden ? fmt::format("{:.1f}%", *figures.hidden * 100) : "-",
             "of the time that overlap can hide"});
  table.row({"speed-up", fmt::format("{:.2f}x", figures.speedup),
             fmt::format("of {:.2f}x possible", times.sequential / times.floor)});
  std::string text = table.text();
  if (!figures.note.empty()) text += "  note: " + figures.note + "\n";
  if (spread > most_spread) {
    text += fmt::format(
        "  note: the machine was busy: an engine alone usually took {:.1f} x its best pass, so "
        "the\n"
        "        pipelined run may have been slowed down, too\n",
        spread);
  }
  return text;
}

namespace {

std::string sweep_text(const OverlapResult& r) {
  if (r.sweep.empty()) return {};
  Table table({Align::right, Align::right, Align::right, Align::right, Align::left});
  table.row({"chunk", "depth", "measured", "predicted"});
  for (const SweepPoint& point : r.sweep) {
    table.row({format_bytes(point.chunk), std::to_string(point.depth),
               format_seconds(point.seconds),
               point.predicted > 0 ? format_seconds(point.predicted) : "-"});
  }
  table.row({format_bytes(r.chunk), std::to_string(r.depth), format_seconds(r.times.pipelined),
             format_seconds(r.predicted), "<- used"});
  return "\nSweep\n" + table.text();
}

}  // namespace

std::string lost_text(const Timeline& sequential, const Timeline& pipelined) {
  const std::uint64_t lost = sequential.lost_records() + pipelined.lost_records();
  if (lost == 0) return {};
  return fmt::format(
      "  warning: the timelines are incomplete, {} record{} lost: busy times are too short\n", lost,
      lost == 1 ? " was" : "s were");
}

std::string overlap_text(const OverlapResult& r, const Device& device) {
  std::string text = fmt::format(
      "Overlap on {} ({}), {}\n"
      "  {} items of {}, {} chunks of {}, {} slots, {} multiply-adds per element\n\n",
      device.capabilities().name, device.name(), name(r.ways), r.items, format_bytes(r.item_bytes),
      r.chunks, format_bytes(r.chunk), r.depth, r.engines.rounds);
  Table table({Align::left, Align::right, Align::right, Align::right});
  table.row({"", "transfer", "compute", "total"});
  const auto row = [&](const char* label, const OverlapRun& run) {
    table.row({label, format_seconds(run.transfer()), format_seconds(run.compute),
               format_seconds(run.seconds)});
  };
  row("sequential", r.sequential);
  row("pipelined", r.pipelined);
  double spread = 1;
  for (const Engine engine : engines_of(r.ways)) {
    // Passes of a fast engine differ by their chunks alone.
    const Floor& floor = r.engines.alone(engine).floor;
    const bool matters = floor.passes() > 0 && floor.seconds() > r.times.floor / 2;
    if (matters) spread = std::max(spread, floor.spread());
  }
  return text + table.text() + "\n" + figures_text(r.times, r.figures, r.verdict, r.tries, spread) +
         lost_text(r.sequential_timeline, r.pipelined_timeline) + sweep_text(r);
}

std::string overlap_text(const FileOverlapResult& r) {
  std::string text = fmt::format(
      "File -> memory -> compute on the CPU\n"
      "  {} in {} chunks of {}, {} slots, {} multiply-adds per element, {}\n\n",
      format_bytes(r.bytes), r.chunks, format_bytes(r.chunk), r.depth, r.rounds,
      r.direct ? "past the page cache" : "through the page cache: O_DIRECT is refused here");
  Table table({Align::left, Align::right, Align::right, Align::right});
  table.row({"", "read", "compute", "total"});
  const auto row = [&](const char* label, const FileOverlapRun& run) {
    table.row({label, format_seconds(run.read), format_seconds(run.compute),
               format_seconds(run.seconds)});
  };
  row("sequential", r.sequential);
  row("pipelined", r.pipelined);
  const double spread = std::max(r.read_alone.spread(), r.compute_alone.spread());
  return text + table.text() + "\n" + figures_text(r.times, r.figures, r.verdict, r.tries, spread) +
         lost_text(r.sequential_timeline, r.pipelined_timeline);
}

}  // namespace ps::cli
