// Text in columns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace ps::cli {

enum class Align : std::uint8_t { left, right };

class Table {
 public:
  explicit Table(std::vector<Align> columns) : columns_(std::move(columns)) {}

  // As many cells as columns; missing ones are empty.
  void row(std::vector<std::string> cells);

  // Lines of equal columns, two spaces apart, each line after `indent` spaces and without blanks
  // at its end.
  std::string text(std::size_t indent = 2) const;

 private:
  std::vector<Align> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace ps::cli
