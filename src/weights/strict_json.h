// JSON from outside, read without building a tree: headers of checkpoints can have millions of
// values. Refuses what a tree would hide or could be exploited with: duplicate keys and deep
// nesting.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <variant>
#include <vector>

namespace ps::detail {

// `text` as a JSON string, cut if it is long, for messages.
std::string in_quotes(std::string_view text);

// `text` as a JSON string. Throws InvalidArgument naming `argument` if it is not UTF-8.
std::string json_string(std::string_view text, std::string_view argument);
std::string json_object(const std::map<std::string, std::string>& map, std::string_view argument);

// A value that is neither an object nor an array.
struct JsonScalar {
  // Other values (null, booleans, negative numbers, fractions) have no use here but to be shown.
  struct Other {
    std::string shown;
  };
  std::variant<std::string, std::uint64_t, Other> value;

  const std::string* text() const { return std::get_if<std::string>(&value); }
  std::optional<std::uint64_t> count() const;
  std::string shown() const;
};

// Is called with what a document holds, in order. Functions may throw.
class JsonVisitor {
 public:
  virtual ~JsonVisitor() = default;

  virtual void scalar(JsonScalar value) = 0;
  virtual void enter_object() = 0;
  virtual void enter_array() = 0;
  virtual void leave() {}

 protected:
  JsonVisitor() = default;
  JsonVisitor(const JsonVisitor&) = default;
  JsonVisitor& operator=(const JsonVisitor&) = default;

  // The key of the value at hand in the object `depth` levels below the outermost.
  const std::string& key(std::size_t depth) const { return levels_[depth].key; }
  // The number of objects and arrays that the value at hand is inside. In enter_object() and
  // enter_array(), the new one does not count; in leave(), the one that ends does not count.
  std::size_t depth() const { return levels_.size(); }

 private:
  friend class JsonEvents;
  struct Level {
    std::string key;
    std::unordered_set<std::string> keys;
  };
  std::vector<Level> levels_;
};

// Throws InvalidArgument whose argument is `what`: for text that is not JSON in UTF-8, that has a
// duplicate key, or that is nested more than `deepest` levels.
void visit_json(std::string_view text, std::string_view what, std::size_t deepest,
                JsonVisitor& visitor);

}  // namespace ps::detail
