#include "weights/strict_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "penstock/base/error.h"

namespace ps::detail {
namespace {

constexpr std::size_t longest_shown = 100;

std::string cut(std::string text) {
  if (text.size() > longest_shown) text = text.substr(0, longest_shown - 3) + "...";
  return text;
}

// The parser quotes what it read, whatever that is.
std::string only_ascii(std::string text) {
  for (char& each : text) {
    if (static_cast<unsigned char>(each) >= 0x80) each = '?';
  }
  return text;
}

}  // namespace

std::string in_quotes(std::string_view text) {
  constexpr auto replace = nlohmann::json::error_handler_t::replace;
  return cut(nlohmann::json(text).dump(-1, ' ', true, replace));
}

std::string json_string(std::string_view text, std::string_view argument) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    throw_invalid(argument, "text in UTF-8", in_quotes(text));
  }
}

std::string json_object(const std::map<std::string, std::string>& map, std::string_view argument) {
  std::string json = "{";
  for (const auto& [key, value] : map) {
    json += fmt::format("{}{}:{}", json.size() > 1 ? "," : "", json_string(key, argument),
                        json_string(value, argument));
  }
  return json + "}";
}

std::optional<std::uint64_t> JsonScalar::count() const {
  const auto* number = std::get_if<std::uint64_t>(&value);
  return number != nullptr ? std::optional(*number) : std::nullopt;
}

std::string JsonScalar::shown() const {
  if (const std::string* string = text()) return in_quotes(*string);
  if (const auto number = count()) return std::to_string(*number);
  return std::get<Other>(value).shown;
}

// The parser's events, as the visitor's. Every function returns true: errors are thrown.
class JsonEvents final : public nlohmann::json_sax<nlohmann::json> {
 public:
  JsonEvents(std::string_view what, std::size_t deepest, JsonVisitor& visitor)
      : what_(what), deepest_(deepest), visitor_(visitor) {}

  bool null() override { return other("null"); }
  bool boolean(bool value) override { return other(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return other(std::to_string(value)); }
  bool number_unsigned(number_unsigned_t value) override {
    visitor_.scalar({value});
    return true;
  }
  bool number_float(number_float_t /*value*/, const string_t& text) override { return other(text); }
  bool string(string_t& value) override {
    visitor_.scalar({std::move(value)});
    return true;
  }
  bool binary(binary_t& /*value*/) override { return other("binary data"); }

  bool start_object(std::size_t /*elements*/) override {
    visitor_.enter_object();
    return enter();
  }
  bool start_array(std::size_t /*elements*/) override {
    visitor_.enter_array();
    return enter();
  }
  bool end_object() override { return leave(); }
  bool end_array() override { return leave(); }

  bool key(string_t& text) override {
    JsonVisitor::Level& level = visitor_.levels_.back();
    if (!level.keys.insert(text).second) {
      throw_invalid(what_, "every key once", in_quotes(text) + " twice");
    }
    level.key = std::move(text);
    return true;
  }

  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::json::exception& error) override {
    throw_invalid(what_, "JSON in UTF-8",
                  fmt::format("an error at byte {}: {}", position, cut(only_ascii(error.what()))));
  }

 private:
  bool other(std::string shown) {
    visitor_.scalar({JsonScalar::Other{cut(std::move(shown))}});
    return true;
  }
  bool enter() {
    if (visitor_.levels_.size() == deepest_) {
      throw_invalid(what_, fmt::format("JSON with at most {} levels", deepest_), "more");
    }
    visitor_.levels_.emplace_back();
    return true;
  }
  bool leave() {
    visitor_.levels_.pop_back();
    visitor_.leave();
    return true;
  }

  std::string_view what_;
  std::size_t deepest_;
  JsonVisitor& visitor_;
};

void visit_json(std::string_view text, std::string_view what, std::size_t deepest,
                JsonVisitor& visitor) {
  // The format has no byte order mark, which the parser would skip.
  if (text.starts_with("\xEF\xBB\xBF")) {
    throw_invalid(what, "JSON in UTF-8", "a byte order mark");
  }
  // To the parser, a zero is the end of the text.
  if (const auto zero = text.find('\0'); zero != std::string_view::npos) {
    throw_invalid(what, "JSON in UTF-8", fmt::format("a zero at byte {}", zero));
  }
  JsonEvents events(what, deepest, visitor);
  nlohmann::json::sax_parse(text, &events);
}

}  // namespace ps::detail
