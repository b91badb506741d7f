#include "base/reading.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "penstock/base/error.h"

namespace ps::detail {

using Json = nlohmann::ordered_json;

Json parse_json(std::string_view text, std::string_view what, int deepest) {
  const auto shallow = [&](int depth, Json::parse_event_t, const Json&) {
    if (depth > deepest)
      throw_invalid(what, "a JSON document written by Penstock", "JSON that is nested too deeply");
    return true;
  };
  try {
    return Json::parse(text, shallow);
  } catch (const Json::exception& error) {
    throw_invalid(what, "JSON", error.what());
  }
}

void Reading::refuse(std::string_view expected) const { throw_invalid(where_, expected, shown()); }

std::string Reading::shown() const {
  if (value_->is_string()) return value_->get<std::string>();
  std::string text = value_->dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

void Reading::only(std::initializer_list<std::string_view> fields) const {
  if (!value_->is_object()) refuse("an object");
  for (const auto& [key, value] : value_->items()) {
    if (std::find(fields.begin(), fields.end(), key) == fields.end()) {
      Reading(value, fmt::format("{}.{}", where_, key)).refuse("no such field");
    }
  }
  for (const std::string_view field : fields) {
    if (!value_->contains(field)) {
      throw_invalid(fmt::format("{}.{}", where_, field), "a value", "nothing");
    }
  }
}

bool Reading::has(std::string_view field) const {
  return value_->is_object() && value_->contains(field);
}

Reading Reading::operator[](const char* field) const {
  if (!value_->is_object()) refuse("an object");
  const std::string here = fmt::format("{}.{}", where_, field);
  const auto found = value_->find(field);
  if (found == value_->end()) throw_invalid(here, "a value", "nothing");
  return {*found, here};
}

std::optional<Reading> Reading::find(const char* field) const {
  if (!has(field) || value_->at(field).is_null()) return std::nullopt;
  return (*this)[field];
}

std::vector<std::pair<std::string, Reading>> Reading::fields() const {
  if (!value_->is_object()) refuse("an object");
  std::vector<std::pair<std::string, Reading>> all;
  for (const auto& [key, value] : value_->items()) {
    all.emplace_back(key, Reading(value, fmt::format("{}.{}", where_, key)));
  }
  return all;
}

std::vector<Reading> Reading::items() const {
  if (!value_->is_array()) refuse("an array");
  std::vector<Reading> all;
  all.reserve(value_->size());
  for (std::size_t i = 0; i < value_->size(); ++i) {
    all.emplace_back((*value_)[i], fmt::format("{}[{}]", where_, i));
  }
  return all;
}

std::string Reading::text() const {
  if (!value_->is_string()) refuse("a string");
  return value_->get<std::string>();
}

double Reading::number() const {
  if (!value_->is_number() || !std::isfinite(value_->get<double>())) refuse("a finite number");
  return value_->get<double>();
}

double Reading::positive() const {
  if (!value_->is_number() || !(value_->get<double>() > 0) || !std::isfinite(value_->get<double>()))
    refuse("a positive number");
  return value_->get<double>();
}

std::uint64_t Reading::count(std::uint64_t least, std::uint64_t most) const {
  if (!value_->is_number_unsigned() || value_->get<std::uint64_t>() < least ||
      value_->get<std::uint64_t>() > most) {
    refuse(fmt::format("a whole number from {} to {}", least, most));
  }
  return value_->get<std::uint64_t>();
}

std::int64_t Reading::integer() const {
  constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (!value_->is_number_integer() ||
      (value_->is_number_unsigned() && value_->get<std::uint64_t>() > most)) {
    refuse("a whole number");
  }
  return value_->get<std::int64_t>();
}

bool Reading::flag() const {
  if (!value_->is_boolean()) refuse("true or false");
  return value_->get<bool>();
}

std::string Reading::time() const {
  constexpr std::string_view shape = "dddd-dd-ddTdd:dd:ddZ";
  const auto fits = [](char given, char wanted) {
    return wanted == 'd' ? given >= '0' && given <= '9' : given == wanted;
  };
  std::string given = text();
  if (!std::equal(given.begin(), given.end(), shape.begin(), shape.end(), fits)) {
    refuse("a time like 2026-01-31T12:00:00Z");
  }
  return given;
}

}  // namespace ps::detail
