#include "support/ladder.h"

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <map>
#include <nlohmann/json.hpp>
#include <ostream>

#include "penstock/base/error.h"
#include "penstock/base/units.h"

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

Json as_json(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

Json as_json(const Row& row) {
  Json json{{"label", row.label}, {"work", row.work}};
  json["seconds"] = row.seconds > 0 ? Json(row.seconds) : Json();
  json["speedup"] = as_json(row.speedup);
  json["hidden"] = as_json(row.hidden);
  json["efficiency"] = as_json(row.efficiency);
  json["upload_gaps"] = Json();
  if (row.gaps) {
    json["upload_gaps"] = {{"seconds", row.gaps->total_seconds},
                           {"count", row.gaps->count},
                           {"largest_seconds", row.gaps->largest_seconds}};
  }
  json["note"] = row.note;
  return json;
}

}  // namespace

std::vector<Rung> select_rungs(const std::string& only) {
  std::vector<Rung> all = rungs();
  if (only.empty()) return all;
  std::string names;
  for (const Rung& rung : all) {
    if (rung.name == only) return {rung};
    names += fmt::format("{}{}", names.empty() ? "" : ", ", rung.name);
  }
  throw ps::InvalidArgument("--only", "one of " + names, only);
}

std::vector<RungRows> climb(Context& context, const std::vector<Rung>& rungs,
                            const std::function<void(const Rung&)>& starting) {
  std::vector<RungRows> results;
  std::map<std::string, double> first_seconds;
  for (const Rung& rung : rungs) {
    starting(rung);
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

void print_table(std::ostream& out, Context& context, const std::vector<RungRows>& results) {
  const Engines& engines = context.engines();
  fmt::print(out, "{}, {} in {} chunks of {}, {} rounds of arithmetic\n", context.device().name(),
             ps::format_bytes(context.bytes()), engines.chunks, ps::format_bytes(engines.chunk),
             engines.rounds);
  fmt::print(
      out, "alone: upload {}, download {}, both ways {}, compute {}, device copy {}\n",
      ps::format_seconds(engines.upload.seconds), ps::format_seconds(engines.download.seconds),
      ps::format_seconds(engines.both_ways.seconds), ps::format_seconds(engines.compute.seconds),
      ps::format_seconds(engines.device_copy.seconds));

  std::size_t width = 0;
  for (const RungRows& result : results) {
    for (const Row& row : result.rows) width = std::max(width, row.label.size());
  }
  for (const RungRows& result : results) {
    fmt::print(out, "\n{}: {}\n", result.rung.name, result.rung.sentence);
    fmt::print(out, "  {:{}}  {:>9}  {:>8}  {:>6}  {:>10}  {:>16}\n", "", width, "time", "speed-up",
               "hidden", "efficiency", "upload idle");
    for (const Row& row : result.rows) {
      fmt::print(out, "  {:{}}  {:>9}  {:>8}  {:>6}  {:>10}  {:>16}{}{}\n", row.label, width,
                 row.seconds > 0 ? ps::format_seconds(row.seconds) : "-", number(row.speedup, "x"),
                 number(row.hidden), number(row.efficiency), gaps_text(row.gaps),
                 row.note.empty() ? "" : "  ", row.note);
    }
  }
}

void print_json(std::ostream& out, Context& context, const std::vector<RungRows>& results) {
  const Engines& engines = context.engines();
  Json json{{"schema", 1},
            {"name", "ladder host"},
            {"device", context.device().name()},
            {"device_name", context.device().capabilities().name},
            {"quick", context.quick()},
            {"bytes", context.bytes()},
            {"chunk", engines.chunk},
            {"rounds", engines.rounds}};
  json["alone_seconds"] = {{"upload", engines.upload.seconds},
                           {"download", engines.download.seconds},
                           {"both_ways", engines.both_ways.seconds},
                           {"compute", engines.compute.seconds},
                           {"device_copy", engines.device_copy.seconds}};
  json["rungs"] = Json::array();
  for (const RungRows& result : results) {
    Json rows = Json::array();
    for (const Row& row : result.rows) rows.push_back(as_json(row));
    json["rungs"].push_back(
        {{"name", result.rung.name}, {"sentence", result.rung.sentence}, {"rows", rows}});
  }
  out << json.dump(2) << '\n';
}

}  // namespace ladder
