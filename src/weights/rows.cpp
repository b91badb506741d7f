#include "weights/rows.h"

#include <fmt/format.h>

#include "penstock/base/error.h"
#include "penstock/weights/weights.h"
#include "weights/strict_json.h"

namespace ps::detail {
namespace {

ByteRange range_of(const WeightInfo& tensor, std::int64_t first_row, std::int64_t rows,
                   std::string_view where) {
  if (first_row == 0 && rows == all_rows) return {0, tensor.bytes};
  const std::int64_t all = tensor.shape.empty() ? 0 : tensor.shape[0];
  const auto check = [&](const char* argument, std::int64_t given, std::int64_t most) {
    if (given >= 0 && given <= most) return;
    throw_invalid(fmt::format("{}{}", where, argument),
                  fmt::format("0 to {} for {}", most, in_quotes(tensor.name)),
                  std::to_string(given));
  };
  check("first_row", first_row, all);
  const std::int64_t left = all - first_row;
  if (rows != all_rows) check("rows", rows, left);
  const auto count = static_cast<std::uint64_t>(rows == all_rows ? left : rows);
  if (all == 0) return {0, 0};
  if (tensor.bytes % static_cast<std::uint64_t>(all) != 0) {
    throw_invalid(fmt::format("{}rows", where), "rows that fill whole bytes",
                  fmt::format("{} of {}", name(tensor.type), in_quotes(tensor.name)));
  }
  const std::uint64_t row = tensor.bytes / static_cast<std::uint64_t>(all);
  return {static_cast<std::uint64_t>(first_row) * row, count * row};
}

}  // namespace

ByteRange checked_rows(const WeightInfo& tensor, std::int64_t first_row, std::int64_t rows,
                       MemoryView to, std::string_view where) {
  const ByteRange range = range_of(tensor, first_row, rows, where);
  if (to.bytes != range.bytes) {
    throw_invalid(fmt::format("{}to", where),
                  fmt::format("{} bytes for {}", range.bytes, in_quotes(tensor.name)),
                  fmt::format("{} bytes", to.bytes));
  }
  return range;
}

}  // namespace ps::detail
