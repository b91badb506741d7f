// Converts a report of `penstock moe` to sections of a page.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "measure/page_sections.h"
#include "penstock/base/units.h"
#include "penstock/measure/timing.h"

namespace ps::detail {
namespace {

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

// `axis` is "depth" or "cache": the points that vary it, and the pipelined run itself.
void add_sweep(PageSections& sections, const Reading& r, const char* axis, const char* other,
               const char* title) {
  PageSeries measured{.name = "pipelined"};
  const auto used = static_cast<double>(r[axis].count(0, any_count));
  measured.points.emplace_back(used, r["pipelined"]["total_us"].positive());
  for (const Reading& point : r["sweep"].items()) {
    const auto x = static_cast<double>(point[axis].count(0, any_count));
    if (x == used || point[other].count(0, any_count) != r[other].count(0, any_count)) continue;
    measured.points.emplace_back(x, point["us"].positive());
  }
  if (measured.points.size() < 2) return;
  std::ranges::sort(measured.points);
  sections.emplace_back(PagePlot{.title = title,
                                 .x = {.label = axis, .unit = "count"},
                                 .y = {.label = "time", .unit = "us"},
                                 .series = {std::move(measured)},
                                 .markers = {{.name = "used", .x = used}}});
}

std::string shown_share(double share) { return fmt::format("{:.1f}%", share * 100); }

// The link of runs that begin with nothing loaded: the slower of the engines that load, alone.
void add_shares_of_link(PageFacts& facts, const Reading& r) {
  double alone = 0;
  std::string_view link;
  for (const auto& [field, named] :
       {std::pair{"read_alone_us", "disk"}, std::pair{"upload_alone_us", "link"}}) {
    const auto time = r.find(field);
    if (!time || time->positive() < alone) continue;
    alone = time->positive();
    link = named;
  }
  if (link.empty()) return;  // nothing was loaded
  const std::string label = fmt::format("share of the {}", link);
  facts.rows.push_back({label, shown_share(alone / r["pipelined"]["total_us"].positive()),
                        fmt::format("pipelined: time of the {} alone / time of the run", link)});
  const auto streamed = r.find("streamed");
  if (!streamed) return;
  // It may have kept more or fewer experts than the pipeline.
  const double loads = static_cast<double>((*streamed)["experts_loaded"].count(0, any_count)) /
                       static_cast<double>(r["experts_loaded"].count(1, any_count));
  facts.rows.push_back({label + ", streamed",
                        shown_share(alone * loads / (*streamed)["total_us"].positive()),
                        "the same of StreamedExperts, for what it loaded"});
}

struct DecodeStep {
  std::uint64_t needed = 0, hits = 0, bytes = 0;
  double us = 0;
};

DecodeStep decode_step(const Reading& row) {
  const std::vector<Reading> cells = row.items();
  if (cells.size() != 6) row.refuse("[needed, hits, late, misses, bytes, us]");
  const auto count = [&](std::size_t cell) { return cells[cell].count(0, any_count); };
  const DecodeStep step{
      .needed = count(0), .hits = count(1), .bytes = count(4), .us = cells[5].positive()};
  if (step.needed != step.hits + count(2) + count(3)) {
    cells[0].refuse("the sum of hits, late and misses");
  }
  return step;
}

double share_in(const Reading& decode, const char* field) {
  const Reading share = decode[field];
  if (share.number() < 0 || share.number() > 1) share.refuse("a number from 0 to 1");
  return share.number();
}

PageFacts decode_facts(const Reading& decode, std::uint64_t experts,
                       const std::vector<DecodeStep>& steps, std::size_t first) {
  const double rate = share_in(decode, "hit_rate"), best = share_in(decode, "best_fixed_set");
  PageFacts facts{.title = "Decode steps with a cache"};
  const auto add = [&](std::string label, std::string value, std::string note) {
    facts.rows.push_back({std::move(label), std::move(value), std::move(note)});
  };
  add("hit rate", shown_share(rate),
      fmt::format("of the experts needed, steps {} to {}", first + 1, steps.size()));
  add("best fixed set", shown_share(best),
      best > 0 ? fmt::format("as many experts, never changed; the cache has {:.2f} of its hits",
                             rate / best)
               : "as many experts, never changed");
  add("offline optimum", shown_share(share_in(decode, "offline_optimum")),
      "a cache that knows what comes next");
  add("room", fmt::format("{} experts", decode["slots"].count(1, any_count)),
      fmt::format("of {}", experts));
  const std::string engine = decode["link"].text();
  if (engine != "disk" && engine != "upload") decode["link"].refuse(R"("disk" or "upload")");
  const std::string link = engine == "disk" ? "disk" : "link";
  if (decode.has("share_of_link") && !decode["share_of_link"].is_null()) {
    add(fmt::format("share of the {}", link), shown_share(decode["share_of_link"].positive()),
        fmt::format("time of the {} alone for the same bytes / time of the steps", link));
  } else {
    add(fmt::format("share of the {}", link), "–", decode["note"].text());
  }
  std::vector<double> us;
  std::uint64_t bytes = 0;
  for (std::size_t i = first; i < steps.size(); ++i) {
    us.push_back(steps[i].us);
    bytes += steps[i].bytes;
  }
  add("time of a step", shown_us(median(std::move(us))),
      fmt::format("median; {} loaded per step",
                  format_bytes(bytes / static_cast<std::uint64_t>(steps.size() - first))));
  return facts;
}

PagePlot hits_over_tokens(const Reading& decode, const std::vector<DecodeStep>& steps,
                          std::size_t first) {
  PageSeries hits{.name = "hits", .marks = false}, needed{.name = "needed", .marks = false},
      best{.name = "best fixed set, mean", .marks = false};
  double counted = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const auto token = static_cast<double>(i + 1);
    hits.points.emplace_back(token, static_cast<double>(steps[i].hits));
    needed.points.emplace_back(token, static_cast<double>(steps[i].needed));
    if (i >= first) counted += static_cast<double>(steps[i].needed);
  }
  const double mean = counted / static_cast<double>(steps.size() - first);
  for (const std::size_t end : {first + 1, steps.size()}) {
    best.points.emplace_back(static_cast<double>(end), share_in(decode, "best_fixed_set") * mean);
  }
  return {.title = "Cache hits over tokens",
          .note =
              "Experts per step, of all layers. The cache begins empty. The best fixed set is "
              "that of the steps that count.",
          .x = {.label = "token", .unit = "count"},
          .y = {.label = "experts", .unit = "count"},
          .series = {std::move(hits), std::move(needed), std::move(best)},
          .markers = {{.name = "counted from here", .x = static_cast<double>(first + 1)}}};
}

constexpr const char* what_bars_are =
    "In the timeline of StreamedExperts, routing lasts until the experts of a layer are known. A "
    "load lasts from then until the last of them is there, and a wait is the part of a load during "
    "which nothing is computed.";

void add_decode(PageSections& sections, const Reading& r) {
  const auto decode = r.find("decode");
  if (!decode) return;
  std::vector<DecodeStep> steps;
  for (const Reading& row : (*decode)["steps"].items()) steps.push_back(decode_step(row));
  if (steps.empty()) (*decode)["steps"].refuse("at least one step");
  const auto first = static_cast<std::size_t>((*decode)["counted_from"].count(0, steps.size() - 1));
  const Reading shape = r["shape"];
  sections.emplace_back(
      decode_facts(*decode, shape["layers"].count(1, 1 << 30) * shape["experts"].count(1, 1 << 30),
                   steps, first));
  sections.emplace_back(hits_over_tokens(*decode, steps, first));
  if (std::vector<PageRun> runs = timeline_runs(*decode); !runs.empty()) {
    sections.emplace_back(
        PageTimelines{.title = "Timeline of a few tokens",
                      .note = "Bars are numbered by the calls of layers, token by token. " +
                              std::string(what_bars_are),
                      .runs = std::move(runs)});
  }
}

}  // namespace

PageSections expert_sections(const Reading& r) {
  PageFacts facts = overlap_facts(r);
  add_shares_of_link(facts, r);
  PageSections sections{std::move(facts), engine_times(r)};
  if (std::vector<PageRun> runs = timeline_runs(r); !runs.empty()) {
    const bool streamed = std::ranges::find(runs, "StreamedExperts", &PageRun::name) != runs.end();
    sections.emplace_back(PageTimelines{
        .title = "Timeline", .note = streamed ? what_bars_are : "", .runs = std::move(runs)});
  }
  add_decode(sections, r);
  add_sweep(sections, r, "depth", "cache", "Time over slots");
  add_sweep(sections, r, "cache", "depth", "Time over experts that stay loaded");
  sections.emplace_back(what_was_loaded(r));
  if (const auto trace = r.find("kernel_trace")) {
    for (auto& section : trace_sections(*trace)) sections.push_back(std::move(section));
  }
  return sections;
}

}  // namespace ps::detail
