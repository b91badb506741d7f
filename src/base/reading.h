// Documents from outside, read strictly: what is not as expected is an InvalidArgument that names
// the place in the document, what was expected there and what stands there.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ps::detail {

// `what` names the document in errors. What is nested deeper than `deepest` is refused: to print or
// destroy it would recurse as deep.
nlohmann::ordered_json parse_json(std::string_view text, std::string_view what, int deepest);

// A value and where it stands. Refers to the document, which must outlive it.
class Reading {
 public:
  Reading(const nlohmann::ordered_json& value, std::string where)
      : value_(&value), where_(std::move(where)) {}

  const std::string& where() const { return where_; }
  [[noreturn]] void refuse(std::string_view expected) const;

  // Exactly these fields, no more and no less.
  void only(std::initializer_list<std::string_view> fields) const;
  bool has(std::string_view field) const;
  Reading operator[](const char* field) const;
  std::optional<Reading> find(const char* field) const;  // none where absent or null
  std::vector<std::pair<std::string, Reading>> fields() const;
  std::vector<Reading> items() const;

  bool is_object() const { return value_->is_object(); }
  bool is_number() const { return value_->is_number(); }
  bool is_null() const { return value_->is_null(); }

  std::string text() const;
  double number() const;    // finite
  double positive() const;  // and above 0
  std::uint64_t count(std::uint64_t least, std::uint64_t most) const;
  std::int64_t integer() const;
  bool flag() const;
  std::string time() const;   // of day: "2026-01-31T12:00:00Z"
  std::string shown() const;  // as it stands there, cut where long

 private:
  const nlohmann::ordered_json* value_;
  std::string where_;
};

}  // namespace ps::detail
