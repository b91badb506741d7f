#include "moe_text.h"

#include <fmt/format.h>

#include <vector>

#include "overlap_text.h"
#include "penstock/base/units.h"
#include "penstock/measure/timing.h"
#include "table.h"

namespace ps::cli {
namespace {

std::string configuration_text(const ExpertOverlapResult& r, const Device& device,
                               const std::string& model) {
  const ExpertShape& shape = r.shape;
  const std::size_t block = ExpertStore::block_bytes(shape);
  std::string text =
      fmt::format("Streamed experts on {} ({})\n", device.capabilities().name, device.name());
  Table table({Align::left, Align::left});
  if (!model.empty()) table.row({"model", model});
  table.row({"experts",
             fmt::format("{} of {} x {} in each of {} layer{}, {}, {} per expert", shape.experts,
                         shape.hidden, shape.width, shape.layers, shape.layers == 1 ? "" : "s",
                         name(shape.dtype), format_bytes(block))});
  if (r.distinct < shape.layers * shape.experts) {
    table.row(
        {"", fmt::format("{} of them allocated, the others reuse their weights", r.distinct)});
  }
  table.row({"tokens", fmt::format("batch {}, sequence {}, {} experts per token", r.batch,
                                   r.sequence, r.choices)});
  table.row(
      {"token-expert pairs",
       fmt::format("{}, {} when padded to tiles of 128{}", r.rows, r.padded_rows,
                   r.rounding == 0 ? "" : fmt::format("; routes rounded to {}", r.rounding))});
  table.row({"loaded", fmt::format("{} of the {} experts that have tokens, {} from {}", r.loaded,
                                   r.needed, format_bytes(r.bytes), name(r.from))});
  if (r.from == ExpertsFrom::disk) {
    table.row({"", r.direct ? "past the page cache"
                            : "through the page cache: O_DIRECT is refused here"});
  }
  table.row({"pipeline", fmt::format("{} slots, {} stream{}, {} experts stay loaded", r.depth,
                                     r.streams, r.streams == 1 ? "" : "s", r.cache)});
  return text + table.text() + "\n";
}

std::string sweep_text(const ExpertOverlapResult& r) {
  if (r.sweep.empty()) return {};
  Table table({Align::right, Align::right, Align::right, Align::left});
  table.row({"slots", "stay loaded", "time"});
  for (const ExpertSweepPoint& point : r.sweep) {
    table.row(
        {std::to_string(point.depth), std::to_string(point.cache), format_seconds(point.seconds)});
  }
  table.row({std::to_string(r.depth), std::to_string(r.cache), format_seconds(r.pipelined.seconds),
             "<- used"});
  return "\nSweep\n" + table.text();
}

std::string decode_text(const ExpertOverlapResult& r) {
  if (!r.decode) {
    return r.why_no_decode.empty()
               ? ""
               : fmt::format("\nDecode steps were not measured: {}\n", r.why_no_decode);
  }
  const ExpertDecode& decode = *r.decode;
  std::vector<double> seconds;
  for (std::size_t i = decode.counted_from; i < decode.steps.size(); ++i) {
    seconds.push_back(decode.steps[i].seconds);
  }
  Table table({Align::left, Align::right, Align::left});
  const auto percent = [](double share) { return fmt::format("{:.1f}%", share * 100); };
  table.row({"hit rate", percent(decode.hit_rate),
             fmt::format("in steps {} to {}; before, the cache fills", decode.counted_from + 1,
                         decode.steps.size())});
  table.row({"best fixed set", percent(decode.best_fixed_set), "as many experts, never changed"});
  table.row(
      {"offline optimum", percent(decode.offline_optimum), "a cache that knows what comes next"});
  table.row({fmt::format("share of the {}", decode.link == Engine::disk ? "disk" : "link"),
             decode.share_of_link ? percent(*decode.share_of_link) : "-",
             decode.share_of_link ? "time of loading the same bytes alone / time of the steps"
                                  : decode.why_no_share});
  table.row({"step", format_seconds(median(std::move(seconds))), "median"});
  return fmt::format(
             "\nDecode: {} steps of {} token{}, room for {} of {} experts, routing by Zipf's law\n",
             decode.steps.size(), r.batch, r.batch == 1 ? "" : "s", decode.slots,
             r.shape.layers * r.shape.experts) +
         table.text();
}

}  // namespace

std::string moe_text(const ExpertOverlapResult& r, const Device& device, const std::string& model) {
  Table table({Align::left, Align::right, Align::right, Align::right});
  table.row({"", "weight load", "compute", "total"});
  const auto row = [&](const char* label, const ExpertOverlapRun& run) {
    table.row({label, format_seconds(run.load()), format_seconds(run.compute),
               format_seconds(run.seconds)});
  };
  row("sequential", r.sequential);
  row("pipelined", r.pipelined);
  if (r.streamed_seconds) {
    table.row({"StreamedExperts", "", "", format_seconds(*r.streamed_seconds)});
  }
  std::string text = configuration_text(r, device, model) + table.text();
  if (r.streamed_seconds) {
    text += fmt::format("  StreamedExperts has {} slots and loaded {} experts\n", r.streamed_slots,
                        r.streamed_loaded);
  } else {
    text += fmt::format("  StreamedExperts was not measured: {}\n", r.why_not_streamed);
  }
  text += "\n" + figures_text(r.times, r.figures, r.verdict, r.tries, 1);
  if (r.verdict.kept()) {
    text += fmt::format("  efficiency {:.1f}%  floor / time of the pipelined run\n",
                        r.figures.efficiency * 100);
  }
  return text + lost_text(r.sequential_timeline, r.pipelined_timeline) + sweep_text(r) +
         decode_text(r);
}

}  // namespace ps::cli
