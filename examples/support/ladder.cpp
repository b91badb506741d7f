#include "support/ladder.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "penstock/base/units.h"
#include "penstock/measure/build.h"
#include "penstock/measure/machine.h"

namespace ladder {
namespace {

using Json = nlohmann::ordered_json;

std::string number(const std::optional<double>& value, const char* suffix = "") {
  return value ? fmt::format("{:.2f}{}", *value, suffix) : "-";
}

std::string gaps_text(const std::optional<ps::Gaps>& gaps) {
  if (!gaps) return "-";
  return fmt::format("{} in {}", ps::format_seconds(gaps->total_seconds), gaps->count);
}

Json number_or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

Json row_as_json(const Row& row) {
  Json gaps;
  if (row.gaps) {
    gaps = {{"seconds", row.gaps->total_seconds},
            {"count", row.gaps->count},
            {"largest_seconds", row.gaps->largest_seconds}};
  }
  return {{"label", row.label},
          {"work", row.work},
          {"seconds", row.seconds > 0 ? Json(row.seconds) : Json()},
          {"speedup", number_or_null(row.speedup)},
          {"hidden", number_or_null(row.hidden)},
          {"efficiency", number_or_null(row.efficiency)},
          {"upload_gaps", gaps},
          {"note", row.note}};
}

}  // namespace

std::vector<RungRows> climb(Context& context, const std::vector<Rung>& rungs,
                            const std::function<void(const Rung&, double fraction)>& starting) {
  std::vector<RungRows> results;
  std::map<std::string, double> first_seconds;
  for (const Rung& rung : rungs) {
    starting(rung, static_cast<double>(results.size()) / static_cast<double>(rungs.size()));
    std::vector<Row> rows = rung.run(context);
    for (Row& row : rows) {
      if (row.work.empty()) row.work = rung.name;
      if (row.seconds <= 0) continue;
      const double first = first_seconds.emplace(row.work, row.seconds).first->second;
      if (!row.speedup) row.speedup = first / row.seconds;
    }
    results.push_back({rung, std::move(rows)});
  }
  return results;
}

std::string as_table(Context& context, const std::vector<RungRows>& results) {
  const ps::Engines& engines = context.engines();
  std::string text = fmt::format(
      "{}, {} in {} chunks of {}, {} rounds of arithmetic\n"
      "alone: upload {}, download {}, both ways {}, compute {}, device copy {}\n",
      context.device().name(), ps::format_bytes(context.bytes()), context.chunks(),
      ps::format_bytes(context.chunk()), engines.rounds, ps::format_seconds(engines.upload.seconds),
      ps::format_seconds(engines.download.seconds), ps::format_seconds(engines.both_ways.seconds),
      ps::format_seconds(engines.compute.seconds), ps::format_seconds(engines.device_copy.seconds));

  std::size_t width = 0;
  for (const RungRows& result : results) {
    for (const Row& row : result.rows) width = std::max(width, row.label.size());
  }
  const auto add_line = [&](const std::string& label, const std::string& seconds,
                            const std::string& speedup, const std::string& hidden,
                            const std::string& efficiency, const std::string& gaps,
                            const std::string& note) {
    fmt::format_to(std::back_inserter(text), "  {:{}}  {:>9}  {:>8}  {:>6}  {:>10}  {:>16}{}{}\n",
                   label, width, seconds, speedup, hidden, efficiency, gaps,
                   note.empty() ? "" : "  ", note);
  };
  for (const RungRows& result : results) {
    text += fmt::format("\n{}: {}\n", result.rung.name, result.rung.sentence);
    add_line("", "time", "speed-up", "hidden", "efficiency", "upload idle", "");
    for (const Row& row : result.rows) {
      add_line(row.label, row.seconds > 0 ? ps::format_seconds(row.seconds) : "-",
               number(row.speedup, "x"), number(row.hidden), number(row.efficiency),
               gaps_text(row.gaps), row.note);
    }
  }
  return text;
}

std::string as_json(Context& context, const std::vector<RungRows>& results) {
  const ps::Machine machine = ps::inspect_machine();
  const ps::Engines& engines = context.engines();
  Json rungs = Json::array();
  for (const RungRows& result : results) {
    Json rows = Json::array();
    for (const Row& row : result.rows) rows.push_back(row_as_json(row));
    rungs.push_back({{"ladder", result.rung.ladder},
                     {"name", result.rung.name},
                     {"sentence", result.rung.sentence},
                     {"rows", rows}});
  }
  const Json json{{"schema", 1},
                  {"name", "ladder"},
                  {"date", ps::now_utc()},
                  {"commit", ps::build_info().commit},
                  {"machine",
                   {{"device", context.device().name()},
                    {"model", context.device().capabilities().name},
                    {"driver", machine.cuda.driver},
                    {"cuda", ps::build_info().cuda},
                    {"cpu", machine.host.cpu}}},
                  {"quick", context.quick()},
                  {"bytes", context.bytes()},
                  {"chunk", context.chunk()},
                  {"rounds", engines.rounds},
                  {"alone_seconds",
                   {{"upload", engines.upload.seconds},
                    {"download", engines.download.seconds},
                    {"both_ways", engines.both_ways.seconds},
                    {"compute", engines.compute.seconds},
                    {"device_copy", engines.device_copy.seconds}}},
                  {"rungs", rungs}};
  return json.dump(2) + '\n';
}

}  // namespace ladder
