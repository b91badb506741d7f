#include "weights/index.h"

#include <fmt/format.h>

#include <utility>

#include "penstock/base/error.h"
#include "weights/strict_json.h"

namespace ps::detail {
namespace {

constexpr std::size_t deepest_index = 16;  // metadata may have any form

bool is_file_name(std::string_view text) {
  return !text.empty() && text != "." && text != ".." &&
         text.find_first_of(std::string_view("/\0", 2)) == std::string_view::npos;
}

class IndexVisitor final : public JsonVisitor {
 public:
  explicit IndexVisitor(std::string_view path) : path_(path) {}

  bool found() const { return found_; }
  WeightMap take() { return std::move(map_); }

  void enter_object() override {
    if (depth() == 1 && in_map()) found_ = true;
    if (depth() == 2 && in_map()) refuse("the name of a file", "an object");
  }

  void enter_array() override {
    if (depth() == 0) refuse("an object", "an array");
    if (in_map()) refuse(depth() == 1 ? "an object" : "the name of a file", "an array");
  }

  void scalar(JsonScalar value) override {
    if (depth() == 0) refuse("an object", value.shown());
    if (!in_map()) return;
    if (depth() == 1) refuse("an object", value.shown());
    if (value.text() == nullptr || !is_file_name(*value.text())) {
      refuse("the name of a file in the folder of the index", value.shown());
    }
    map_.emplace(key(1), *value.text());
  }

 private:
  bool in_map() const { return depth() > 0 && key(0) == "weight_map"; }

  [[noreturn]] void refuse(std::string_view expected, std::string_view given) const {
    std::string where(path_);
    if (depth() > 0) where += ": weight_map";
    if (depth() > 1) where += fmt::format(", tensor {}", in_quotes(key(1)));
    throw_invalid(where, expected, given);
  }

  std::string_view path_;
  WeightMap map_;
  bool found_ = false;
};

}  // namespace

WeightMap parse_index(std::string_view json, std::string_view path) {
  IndexVisitor visitor(path);
  visit_json(json, path, deepest_index, visitor);
  if (!visitor.found()) throw_invalid(fmt::format("{}: weight_map", path), "an object", "none");
  return visitor.take();
}

std::string format_index(const WeightMap& map, std::uint64_t total_bytes) {
  return fmt::format(R"({{"metadata":{{"total_size":{}}},"weight_map":{}}})", total_bytes,
                     json_object(map, "name")) +
         "\n";
}

}  // namespace ps::detail
