#include "decode/support/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

#include "decode/support/problem.h"
#include "penstock/base/error.h"

namespace ladder::decode {
namespace {

constexpr int no_entry = 1 << 30;  // of the table, behind the pages of a sequence

// The same numbers in every run.
std::mt19937 generator(unsigned seed) { return std::mt19937(seed); }

void check(const Shape& shape) {
  if (shape.lengths.empty() || std::ranges::min(shape.lengths) < 0) {
    ps::detail::throw_invalid("lengths", "at least one, none of them negative",
                              fmt::format("[{}]", fmt::join(shape.lengths, ", ")));
  }
  if (shape.heads_k < 1 || shape.heads_q < 1 || shape.heads_q % shape.heads_k != 0 ||
      shape.heads_q / shape.heads_k > tile_rows) {
    ps::detail::throw_invalid("heads_q, heads_k",
                              fmt::format("1 to {} query heads for each head of k", tile_rows),
                              fmt::format("{}, {}", shape.heads_q, shape.heads_k));
  }
  if (shape.page_rows < 1) ps::detail::throw_invalid("page_rows", "at least 1", "0");
}

}  // namespace

std::size_t Shape::keys() const {
  return std::accumulate(lengths.begin(), lengths.end(), std::size_t{0});
}

double Shape::bytes() const {
  constexpr double key_and_value = 2.0 * dim * 2;
  return static_cast<double>(keys()) * heads_k * key_and_value;
}

std::vector<int> equal_lengths(unsigned count, int keys) { return std::vector<int>(count, keys); }

std::vector<int> one_long(unsigned count, int keys) {
  const int all = static_cast<int>(count) * keys, others = static_cast<int>(count) - 1;
  int left = all - all / 2;
  std::vector<int> lengths;
  for (int i = others; i > 0; --i) {
    lengths.push_back(left / i);
    left -= lengths.back();
  }
  lengths.insert(lengths.begin() + others / 2, all / 2);
  return lengths;
}

std::int64_t Placement::row_of(unsigned sequence, unsigned key) const {
  if (pages.empty()) return starts[sequence] + std::int64_t{key};
  const auto in_page = static_cast<std::int64_t>(key % page_rows);
  const int page = pages[std::size_t{sequence} * table_width + key / page_rows];
  const bool exists = page >= 0 && std::cmp_less(page, page_count);
  return exists ? page * static_cast<std::int64_t>(page_rows) + in_page : -1;
}

Placement place(const Shape& shape) {
  check(shape);
  Placement placed{.page_rows = shape.page_rows};
  const auto pages_of = [&](int length) {
    return static_cast<unsigned>((static_cast<std::size_t>(length) + shape.page_rows - 1) /
                                 shape.page_rows);
  };
  unsigned all = 0;
  for (const int length : shape.lengths) {
    all += pages_of(length);
    placed.table_width = std::max(placed.table_width, pages_of(length));
  }
  placed.table_width = std::max(placed.table_width, 1U);
  placed.page_count = all + 1;  // nobody has the last one
  std::vector<int> order(all);
  std::iota(order.begin(), order.end(), 0);
  if (shape.paged) {
    std::shuffle(order.begin(), order.end(), generator(7));
    placed.pages.assign(shape.lengths.size() * placed.table_width, no_entry);
  }
  unsigned number = 0;
  for (std::size_t b = 0; b < shape.lengths.size(); ++b) {
    placed.starts.push_back(static_cast<int>(number * placed.page_rows));
    const auto length = static_cast<std::size_t>(shape.lengths[b]);
    for (std::size_t key = 0; key < length; key += placed.page_rows, ++number) {
      const int page = order[number];
      std::size_t used = std::min(placed.page_rows, length - key);
      if (shape.paged) {
        int& entry = placed.pages[b * placed.table_width + key / placed.page_rows];
        entry = page;
        if (shape.bad_every > 0 && number % shape.bad_every == shape.bad_every - 1) {
          entry = number / shape.bad_every % 2 == 0 ? static_cast<int>(placed.page_count) : -1;
          used = 0;
        }
      }
      if (used == placed.page_rows) continue;
      placed.unused.push_back(
          {static_cast<std::size_t>(page) * placed.page_rows + used, placed.page_rows - used});
    }
  }
  placed.starts.push_back(static_cast<int>(number * placed.page_rows));
  placed.unused.push_back({number * placed.page_rows, placed.page_rows});
  return placed;
}

}  // namespace ladder::decode
