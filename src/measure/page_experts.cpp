// Converts a report of `penstock moe` to sections of a page.
#include <fmt/format.h>

#include <algorithm>

#include "measure/page_sections.h"
#include "penstock/base/units.h"

namespace ps::detail {
namespace {

constexpr std::uint64_t any_count = std::uint64_t{1} << 60;

PageFacts what_was_loaded(const Reading& r) {
  PageFacts facts{.title = "What ran"};
  const auto add = [&](std::string label, std::string value, std::string note = "") {
    facts.rows.push_back({std::move(label), std::move(value), std::move(note)});
  };
  const Reading shape = r["shape"];
  const auto number = [](const Reading& value) { return value.count(0, any_count); };
  add("machine", r["device"]["model"].text(), r["device"]["name"].text());
  add("experts",
      fmt::format("{} of {} x {}, {}", number(shape["experts"]), number(shape["hidden"]),
                  number(shape["width"]), shape["dtype"].text()),
      fmt::format("{} layers, {} experts per token", number(shape["layers"]),
                  number(shape["choices"])));
  add("tokens", fmt::format("{} x {}", number(r["batch"]), number(r["sequence"])),
      fmt::format("{} rows, {} with padding", number(r["rows"]), number(r["padded_rows"])));
  add("loaded",
      fmt::format("{} of {} experts", number(r["experts_loaded"]), number(r["experts_needed"])),
      fmt::format("{} from {}", format_bytes(number(r["bytes_loaded"])), r["from"].text()));
  add("slots", fmt::format("{}", r["depth"].count(1, any_count)),
      fmt::format("{} streams", r["streams"].count(1, any_count)));
  if (const auto streamed = r.find("streamed")) {
    add("StreamedExperts", shown_us((*streamed)["total_us"].positive()),
        fmt::format("with {} slots, loaded {} experts", number((*streamed)["slots"]),
                    number((*streamed)["experts_loaded"])));
  }
  add("made by", fmt::format("penstock {}", r["version"].text()),
      fmt::format("commit {}, {}", r["commit"].text(), r["date"].text()));
  return facts;
}

// `axis` is "depth" or "cache": the points that vary it.
void add_sweep(PageSections& sections, const Reading& r, const char* axis, const char* other,
               const char* title) {
  PageSeries measured{.name = "pipelined"};
  for (const Reading& point : r["sweep"].items()) {
    if (point[other].count(0, any_count) != r[other].count(0, any_count)) continue;
    measured.points.emplace_back(static_cast<double>(point[axis].count(0, any_count)),
                                 point["us"].positive());
  }
  if (measured.points.size() < 2) return;
  std::ranges::sort(measured.points);
  sections.emplace_back(PagePlot{.title = title,
                                 .x = {.label = axis, .unit = "count"},
                                 .y = {.label = "time", .unit = "us"},
                                 .series = {std::move(measured)}});
}

}  // namespace

PageSections expert_sections(const Reading& r) {
  PageSections sections{overlap_facts(r), engine_times(r)};
  if (std::vector<PageRun> runs = timeline_runs(r); !runs.empty()) {
    sections.emplace_back(PageTimelines{.title = "Timeline", .runs = std::move(runs)});
  }
  add_sweep(sections, r, "depth", "cache", "Time over slots");
  add_sweep(sections, r, "cache", "depth", "Time over experts that stay loaded");
  sections.emplace_back(what_was_loaded(r));
  return sections;
}

}  // namespace ps::detail
