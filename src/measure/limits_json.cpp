// Limits as JSON and back. Reading is strict: a file that is not exactly ours is not believed.
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/reading.h"
#include "host/machine_key.h"
#include "penstock/measure/limits_cache.h"

namespace ps {
namespace {

using detail::Reading;
using Json = nlohmann::ordered_json;

constexpr int schema = 1;

std::optional<Ceiling> ceiling_named(std::string_view key) {
  for (const Ceiling ceiling : all_ceilings) {
    if (name(ceiling) == key) return ceiling;
  }
  return std::nullopt;
}

Rate parse_rate(const Reading& rate) {
  rate.only({"bytes_per_second", "bytes", "repetitions", "note"});
  return {.bytes_per_second = rate["bytes_per_second"].positive(),
          .bytes = rate["bytes"].count(1, std::uint64_t{1} << 60),
          .repetitions = static_cast<int>(rate["repetitions"].count(1, 1'000'000)),
          .note = rate["note"].text()};
}

Limits parse_entry(const Reading& entry) {
  entry.only({"device", "driver", "cpu", "version", "date", "directory", "rates"});
  Limits limits;
  limits.key = detail::parse_key(entry);
  limits.date = entry["date"].time();
  limits.directory = entry["directory"].text();
  for (const auto& [key, rate] : entry["rates"].fields()) {
    const auto ceiling = ceiling_named(key);
    if (!ceiling) rate.refuse("the name of a ceiling");
    limits.rates[*ceiling] = parse_rate(rate);
  }
  return limits;
}

Json json_of(const Limits& limits) {
  Json rates = Json::object();
  for (const auto& [ceiling, rate] : limits.rates) {
    rates[std::string(name(ceiling))] = {{"bytes_per_second", rate.bytes_per_second},
                                         {"bytes", rate.bytes},
                                         {"repetitions", rate.repetitions},
                                         {"note", rate.note}};
  }
  Json entry = detail::key_json(limits.key);
  entry["date"] = limits.date;
  entry["directory"] = limits.directory;
  entry["rates"] = std::move(rates);
  return entry;
}

std::string dumped(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string as_json(const Limits& limits) { return dumped(json_of(limits)); }

std::string format_limits(const std::vector<Limits>& entries) {
  Json list = Json::array();
  for (const Limits& limits : entries) list.push_back(json_of(limits));
  return dumped({{"schema", schema}, {"entries", std::move(list)}}) + "\n";
}

std::vector<Limits> parse_limits(std::string_view given) {
  constexpr int deepest = 8;
  const Json document = detail::parse_json(given, "limits", deepest);
  const Reading file(document, "limits");
  if (const auto version = file.find("schema"); version) version->count(schema, schema);
  file.only({"schema", "entries"});
  std::vector<Limits> entries;
  for (const Reading& entry : file["entries"].items()) entries.push_back(parse_entry(entry));
  return entries;
}

}  // namespace ps
