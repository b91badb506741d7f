// Converts a report of sequential and pipelined runs to sections of a page.
#include <fmt/format.h>

#include <algorithm>

#include "measure/page_sections.h"
#include "penstock/base/units.h"

namespace ps::detail {
namespace {

std::string percent(const std::optional<Reading>& share) {
  return share ? fmt::format("{:.1f}%", share->number() * 100) : "nothing to hide";
}

PageFacts what_ran(const Reading& r) {
  PageFacts facts{.title = "What ran"};
  const auto add = [&](std::string label, std::string value, std::string note = "") {
    facts.rows.push_back({std::move(label), std::move(value), std::move(note)});
  };
  add("machine", r["device"]["model"].text(), r["device"]["name"].text());
  if (const auto ways = r.find("ways")) {
    add("work", ways->text(),
        fmt::format("{} items of {}", r["items"].count(1, any_count),
                    format_bytes(r["item_bytes"].count(1, any_count))));
  } else {
    add("work", "file to memory to compute",
        fmt::format("{}, {}", format_bytes(r["bytes"].count(1, any_count)),
                    r["direct"].flag() ? "bypassing the page cache" : "through the page cache"));
  }
  add("chunks", fmt::format("{} of {}", r["chunks"].count(1, any_count),
                            format_bytes(r["chunk_bytes"].count(1, any_count))));
  add("slots", fmt::format("{}", r["depth"].count(1, any_count)), "per ring");
  add("compute", fmt::format("{}", r["rounds"].count(1, any_count)), "multiply-adds per element");
  if (const auto traced = r.find("traced_by")) add("device timed by", traced->text());
  add("made by", fmt::format("penstock {}", r["version"].text()),
      fmt::format("commit {}, {}", r["commit"].text(), r["date"].text()));
  return facts;
}

}  // namespace

PageFacts overlap_facts(const Reading& r) {
  const double sequential = r["sequential_busy_us"].positive(), floor = r["floor_us"].positive();
  PageFacts facts{.title = "How close to the floor"};
  facts.rows = {{"hidden", percent(r.find("hidden")), "of the time that overlapping can hide"},
                {"efficiency", percent(r.find("efficiency")), "floor / pipelined time"},
                {"speed-up", fmt::format("{:.2f}x", r["speedup"].number()),
                 fmt::format("of {:.2f}x possible", sequential / floor)},
                {"floor", shown_us(floor), "the slowest engine or the shared link, alone"},
                {"ideal", shown_us(r["ideal_us"].positive()),
                 "floor plus filling and draining the pipeline"}};
  if (const auto gaps = r.find("upload_gaps")) {
    facts.rows.push_back(
        {"gaps between uploads", shown_us((*gaps)["total_us"].number()),
         fmt::format("{} of them, the largest {}", (*gaps)["count"].count(0, any_count),
                     shown_us((*gaps)["largest_us"].number()))});
  }
  if (const auto starts = r.find("start_delay")) {
    facts.rows.push_back(
        {"start delay of compute", shown_us((*starts)["median_us"].number()),
         fmt::format("median, from when a chunk and the engine are ready; {} in total",
                     shown_us((*starts)["total_us"].number()))});
  }
  if (const auto submit = r.find("submit_cpu_us_per_chunk")) {
    facts.rows.push_back(
        {"enqueuing", shown_us(submit->number()), "CPU time per chunk of the enqueuing thread"});
  }
  if (!r["valid"].flag()) facts.rows.push_back({"dropped", r["note"].text(), ""});
  return facts;
}

// "upload_us" is shown as "upload".
PageTable engine_times(const Reading& r) {
  PageTable table{.title = "Time of each engine",
                  .note = "The floor is the time of the slowest engine or the shared link, alone.",
                  .columns = {{.name = "run", .numeric = false}}};
  constexpr std::string_view unit = "_us", total = "total_us";
  std::vector<std::string> columns;
  for (const auto& [key, value] : r["pipelined"].fields()) {
    if (!key.ends_with(unit)) value.refuse("a name that ends in \"_us\"");
    if (key != total && value.number() > 0) columns.push_back(key);
  }
  columns.emplace_back(total);
  for (const std::string& column : columns) {
    std::string shown = column.substr(0, column.size() - unit.size());
    std::ranges::replace(shown, '_', ' ');
    table.columns.push_back({.name = std::move(shown)});
  }
  table.columns.push_back({.name = "floor"});
  table.columns.push_back({.name = "floor / total", .share = true});
  const double floor = r["floor_us"].positive();
  for (const char* run : {"sequential", "pipelined"}) {
    std::vector<PageCell> row{run};
    for (const std::string& column : columns) {
      row.emplace_back(shown_us(r[run][column.c_str()].number()));
    }
    row.emplace_back(shown_us(floor));
    row.emplace_back(floor / r[run]["total_us"].positive());
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::string shown_us(double us) { return format_seconds(us * 1e-6); }

PageSections sweep_sections(const std::vector<Reading>& points, const char* chunk_field,
                            double chosen_chunk, const std::string& title) {
  PageSeries measured{.name = "measured"}, predicted{.name = "predicted"},
      by_depth{.name = "measured"};
  for (const Reading& point : points) {
    const double chunk = point[chunk_field].positive(), us = point["us"].positive();
    const double model = point["predicted_us"].number();
    if (model > 0) {
      measured.points.emplace_back(chunk, us);
      predicted.points.emplace_back(chunk, model);
    } else {
      by_depth.points.emplace_back(point["depth"].positive(), us);
    }
  }
  PageSections sections;
  if (!measured.points.empty()) {
    sections.emplace_back(PagePlot{.title = title + "chunk size",
                                   .note = "Small chunks pay the launch overhead more often; large "
                                           "chunks take longer to fill the pipeline.",
                                   .x = {.label = "chunk", .unit = "bytes", .logarithmic = true},
                                   .y = {.label = "time", .unit = "us"},
                                   .series = {std::move(measured), std::move(predicted)},
                                   .markers = {{.name = "chosen", .x = chosen_chunk}}});
  }
  if (!by_depth.points.empty()) {
    std::ranges::sort(by_depth.points);
    sections.emplace_back(PagePlot{.title = title + "slots per ring",
                                   .x = {.label = "slots", .unit = "count"},
                                   .y = {.label = "time", .unit = "us"},
                                   .series = {std::move(by_depth)}});
  }
  return sections;
}

PageSections overlap_sections(const Reading& r) {
  PageSections sections{overlap_facts(r), engine_times(r)};
  if (std::vector<PageRun> runs = timeline_runs(r); !runs.empty()) {
    sections.emplace_back(PageTimelines{.title = "Timeline", .runs = std::move(runs)});
  }
  if (const auto sweep = r.find("sweep")) {
    const double chosen = r["chunk_bytes"].positive();
    for (auto& section : sweep_sections(sweep->items(), "chunk_bytes", chosen, "Time over ")) {
      sections.push_back(std::move(section));
    }
  }
  sections.emplace_back(what_ran(r));
  return sections;
}

}  // namespace ps::detail
