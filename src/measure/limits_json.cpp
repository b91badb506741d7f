// Limits as JSON and back. Reading is strict: a file that is not exactly ours is not believed.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "penstock/base/error.h"
#include "penstock/measure/limits_cache.h"

namespace ps {
namespace {

using Json = nlohmann::ordered_json;

constexpr int schema = 1;
constexpr int deepest = 8;

std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

[[noreturn]] void refuse(const std::string& where, std::string_view expected, const Json& given) {
  detail::throw_invalid(where, expected, shown(given));
}

// Exactly these fields, no more and no less.
void check_fields(const Json& object, const std::string& where,
                  std::initializer_list<std::string_view> fields) {
  if (!object.is_object()) refuse(where, "an object", object);
  for (const auto& [key, value] : object.items()) {
    if (std::find(fields.begin(), fields.end(), key) == fields.end()) {
      refuse(fmt::format("{}.{}", where, key), "no such field", value);
    }
  }
  for (const std::string_view field : fields) {
    if (!object.contains(field)) {
      detail::throw_invalid(fmt::format("{}.{}", where, field), "a value", "nothing");
    }
  }
}

std::string text(const Json& object, const std::string& where, const char* field) {
  const Json& value = object.at(field);
  if (!value.is_string()) refuse(where + "." + field, "a string", value);
  return value.get<std::string>();
}

std::uint64_t count(const Json& object, const std::string& where, const char* field,
                    std::uint64_t most) {
  const Json& value = object.at(field);
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() == 0 ||
      value.get<std::uint64_t>() > most) {
    refuse(where + "." + field, fmt::format("a whole number from 1 to {}", most), value);
  }
  return value.get<std::uint64_t>();
}

std::optional<Ceiling> ceiling_named(std::string_view key) {
  for (const Ceiling ceiling : all_ceilings) {
    if (name(ceiling) == key) return ceiling;
  }
  return std::nullopt;
}

Rate parse_rate(const Json& object, const std::string& where) {
  check_fields(object, where, {"bytes_per_second", "bytes", "repetitions", "note"});
  const Json& speed = object.at("bytes_per_second");
  if (!speed.is_number() || !(speed.get<double>() > 0) || !std::isfinite(speed.get<double>())) {
    refuse(where + ".bytes_per_second", "a positive number", speed);
  }
  return {.bytes_per_second = speed.get<double>(),
          .bytes = count(object, where, "bytes", std::uint64_t{1} << 60),
          .repetitions = static_cast<int>(count(object, where, "repetitions", 1'000'000)),
          .note = text(object, where, "note")};
}

void check_date(const std::string& date, const std::string& where) {
  constexpr std::string_view shape = "dddd-dd-ddTdd:dd:ddZ";
  const auto fits = [](char given, char wanted) {
    return wanted == 'd' ? given >= '0' && given <= '9' : given == wanted;
  };
  if (!std::equal(date.begin(), date.end(), shape.begin(), shape.end(), fits)) {
    refuse(where + ".date", "a time like 2026-01-31T12:00:00Z", date);
  }
}

Limits parse_entry(const Json& object, const std::string& where) {
  check_fields(object, where, {"device", "driver", "cpu", "version", "date", "directory", "rates"});
  Limits limits;
  limits.key = {.device = text(object, where, "device"),
                .driver = text(object, where, "driver"),
                .cpu = text(object, where, "cpu"),
                .version = text(object, where, "version")};
  limits.date = text(object, where, "date");
  check_date(limits.date, where);
  limits.directory = text(object, where, "directory");
  const Json& rates = object.at("rates");
  if (!rates.is_object()) refuse(where + ".rates", "an object", rates);
  for (const auto& [key, value] : rates.items()) {
    const auto ceiling = ceiling_named(key);
    const std::string here = fmt::format("{}.rates.{}", where, key);
    if (!ceiling) refuse(here, "the name of a ceiling", value);
    limits.rates[*ceiling] = parse_rate(value, here);
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
  return {{"device", limits.key.device}, {"driver", limits.key.driver},
          {"cpu", limits.key.cpu},       {"version", limits.key.version},
          {"date", limits.date},         {"directory", limits.directory},
          {"rates", std::move(rates)}};
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
  // Printing and destroying what is nested deeper than ours would recurse as deep.
  const auto shallow = [](int depth, Json::parse_event_t, const Json&) {
    if (depth > deepest) {
      detail::throw_invalid("limits", "JSON of ours", "one that is nested too deeply");
    }
    return true;
  };
  Json file;
  try {
    file = Json::parse(given, shallow);
  } catch (const Json::exception& error) {
    detail::throw_invalid("limits", "JSON", error.what());
  }
  if (file.is_object() && file.contains("schema") && file.at("schema") != schema) {
    refuse("limits.schema", fmt::format("{}", schema), file.at("schema"));
  }
  check_fields(file, "limits", {"schema", "entries"});
  const Json& list = file.at("entries");
  if (!list.is_array()) refuse("limits.entries", "an array", list);
  std::vector<Limits> entries;
  for (std::size_t i = 0; i < list.size(); ++i) {
    entries.push_back(parse_entry(list[i], fmt::format("limits.entries[{}]", i)));
  }
  return entries;
}

}  // namespace ps
