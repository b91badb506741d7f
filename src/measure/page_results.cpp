// Converts a benchmark's results to sections of a page.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "measure/page_sections.h"
#include "penstock/base/units.h"

namespace ps::detail {
namespace {

constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

// The time that a case is judged by: the GPU's own where it is known, else the call's.
double time_us(const Reading& times) {
  for (const char* field : {"gpu_us", "call_us"}) {
    if (const auto time = times.find(field)) return time->positive();
  }
  return unknown;
}

std::string shown_time(double us) { return std::isnan(us) ? "–" : shown_us(us); }

std::string shown_ratio(double ratio) {
  return std::isnan(ratio) ? "–" : fmt::format("{:.3f}", ratio);
}

// A time that only some cases have, as a column of its own and divided by ours. The share of a
// floor is drawn as a bar that ends at 1; a yardstick may be beaten, as a peer may.
struct OptionalTime {
  const char* field;
  const char* name;
  bool floor;
};

constexpr OptionalTime optional_times[] = {{"floor_us", "floor", true},
                                           {"yardstick_us", "yardstick", false}};

bool any_has(const Reading& cases, const char* field) {
  return std::ranges::any_of(cases.items(), [&](const Reading& given) { return given.has(field); });
}

PageTable cases_table(const Reading& results) {
  std::vector<std::string> peers;
  for (const auto& [peer, version] : results["peers"].fields()) peers.push_back(peer);
  PageTable table{
      .title = results["name"].text(),
      .note =
          "Ours and the peers were timed in interleaved runs in one process. A floor is "
          "the best time of an engine alone and cannot be beaten; a yardstick, such as "
          "a plain copy, can.",
      .columns = {{.name = "case", .numeric = false}, {.name = "ours"}}};
  std::vector<OptionalTime> shown;
  for (const OptionalTime& time : optional_times) {
    if (!any_has(results["cases"], time.field)) continue;
    shown.push_back(time);
    table.columns.push_back({.name = time.name});
    table.columns.push_back({.name = std::string(time.name) + " / ours", .share = time.floor});
  }
  for (const std::string& peer : peers) {
    table.columns.push_back({.name = peer});
    table.columns.push_back({.name = peer + " / ours"});
  }
  for (const Reading& given : results["cases"].items()) {
    const double ours = time_us(given["ours"]);
    std::vector<PageCell> row{given["case"].text(), shown_time(ours)};
    for (const OptionalTime& time : shown) {
      const auto found = given.find(time.field);
      const double us = found ? found->positive() : unknown;
      row.emplace_back(shown_time(us));
      if (time.floor) {
        row.emplace_back(us / ours);
      } else {
        row.emplace_back(shown_ratio(us / ours));
      }
    }
    for (const std::string& peer : peers) {
      const auto of_peer = given["peer"].find(peer.c_str());
      const double time = of_peer ? time_us(*of_peer) : unknown;
      row.emplace_back(shown_time(time));
      row.emplace_back(shown_ratio(time / ours));
    }
    table.rows.push_back(std::move(row));
  }
  if (const auto dropped = results.find("dropped")) {
    for (const Reading& given : dropped->items()) {
      table.note +=
          fmt::format(" {} was dropped: {}.", given["case"].text(), given["reason"].text());
    }
  }
  return table;
}

// "copy_TBps" is a sloped ceiling, "gemm_TFLOPs" a flat one.
std::optional<PageCeiling> ceiling_of(const std::string& key, double value) {
  constexpr std::pair<std::string_view, double> units[] = {
      {"_GBps", 1e9}, {"_TBps", 1e12}, {"_GFLOPs", 1e9}, {"_TFLOPs", 1e12}};
  for (const auto& [unit, scale] : units) {
    if (!key.ends_with(unit)) continue;
    std::string name = key.substr(0, key.size() - unit.size());
    std::ranges::replace(name, '_', ' ');
    const bool roof = unit.ends_with("FLOPs");
    return PageCeiling{.name = std::move(name),
                       .bytes_per_second = roof ? 0 : value * scale,
                       .flops = roof ? value * scale : 0};
  }
  return std::nullopt;
}

// Shows the cases that give their number of operations and bytes.
std::optional<PageRoofline> roofline(const Reading& results) {
  PageRoofline roofline{.title = "Roofline"};
  for (const Reading& given : results["cases"].items()) {
    const auto metrics = given.find("metrics");
    const double ours = time_us(given["ours"]);
    if (!metrics || std::isnan(ours) || !metrics->has("flop") || !metrics->has("bytes")) continue;
    const double flop = (*metrics)["flop"].positive();
    roofline.work.push_back({.name = given["case"].text(),
                             .intensity = flop / (*metrics)["bytes"].positive(),
                             .flops = flop / (ours * 1e-6)});
  }
  if (roofline.work.empty()) return std::nullopt;
  for (const auto& [key, value] : results["machine"]["ceilings"].fields()) {
    if (const auto ceiling = ceiling_of(key, value.positive())) {
      roofline.ceilings.push_back(*ceiling);
    }
  }
  return roofline;
}

// The load of the experts of a case that gives it: how many tokens each of them has.
std::optional<PagePlot> expert_load(const Reading& given) {
  const auto metrics = given.find("metrics");
  const auto load = metrics ? metrics->find("load") : std::nullopt;
  if (!load) return std::nullopt;
  std::vector<double> tokens;
  for (const Reading& expert : load->items()) {
    tokens.push_back(static_cast<double>(expert.count(0, any_count)));
  }
  std::ranges::sort(tokens, std::greater());
  if (tokens.empty() || tokens.front() == 0) return std::nullopt;
  const auto experts = static_cast<double>(tokens.size());
  const double mean = std::accumulate(tokens.begin(), tokens.end(), 0.0) / experts;
  PageSeries each{.name = "tokens", .marks = false};
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    each.points.emplace_back(static_cast<double>(i + 1), tokens[i]);
  }
  return PagePlot{
      .title = given["case"].text() + ": tokens per expert",
      .note = fmt::format("Experts from the most to the least loaded; the first has {:.2f} × the "
                          "mean, the last {:.2f} ×.",
                          tokens.front() / mean, tokens.back() / mean),
      .x = {.label = "expert", .unit = "count"},
      .y = {.label = "tokens", .unit = "count"},
      .series = {std::move(each),
                 {.name = "mean", .points = {{1, mean}, {experts, mean}}, .marks = false}}};
}

PageFacts machine(const Reading& results) {
  PageFacts facts{.title = "Where it ran"};
  for (const auto& [label, value] : results["machine"].fields()) {
    if (label != "ceilings") facts.rows.push_back({label, value.shown(), ""});
  }
  for (const auto& [label, value] : results["machine"]["ceilings"].fields()) {
    const auto ceiling = ceiling_of(label, value.positive());
    if (ceiling && ceiling->bytes_per_second > 0) {
      facts.rows.push_back({ceiling->name, format_rate(ceiling->bytes_per_second), "measured"});
    } else {
      facts.rows.push_back({label, value.shown(), "measured"});
    }
  }
  for (const auto& [peer, version] : results["peers"].fields()) {
    facts.rows.push_back({peer, version.text(), "peer"});
  }
  facts.rows.push_back({"commit", results["commit"].text(), results["date"].text()});
  return facts;
}

}  // namespace

PageSections results_sections(const Reading& results) {
  PageSections sections{cases_table(results)};
  for (const Reading& given : results["cases"].items()) {
    if (const auto load = expert_load(given)) sections.emplace_back(*load);
    const auto metrics = given.find("metrics");
    const auto sweep = metrics ? metrics->find("sweep") : std::nullopt;
    if (!sweep) continue;
    const double chosen = given["params"]["chunk"].positive();
    for (auto& section :
         sweep_sections(sweep->items(), "chunk", chosen, given["case"].text() + ": time over ")) {
      sections.push_back(std::move(section));
    }
  }
  if (const auto work = roofline(results)) sections.emplace_back(*work);
  sections.emplace_back(machine(results));
  return sections;
}

}  // namespace ps::detail
