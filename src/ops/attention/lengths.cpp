#include "ops/attention/lengths.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "penstock/base/error.h"

namespace ps::attending {
namespace {

using detail::AttentionPages;
using detail::AttentionSequences;
using detail::throw_invalid;

void check_cumulative(std::string_view name, const std::int32_t* ends, std::int32_t count,
                      std::int32_t rows, std::int32_t longest) {
  for (std::int32_t b = 0; ends != nullptr && b <= count; ++b) {
    if (ends[b] < 0 || ends[b] > rows) {
      throw_invalid(name, fmt::format("values from 0 to {}, the number of rows", rows),
                    fmt::format("{} at {}", ends[b], b));
    }
    if (b > 0 && ends[b] < ends[b - 1]) {
      throw_invalid(name, "values that do not decrease",
                    fmt::format("{} at {}, after {}", ends[b], b, ends[b - 1]));
    }
    if (b > 0 && ends[b] - ends[b - 1] > longest) {
      throw_invalid(name, fmt::format("sequences of at most {} rows", longest),
                    fmt::format("{} rows in sequence {}", ends[b] - ends[b - 1], b - 1));
    }
  }
}

// The number of rows of a sequence in k.
std::int32_t rows_of(const AttentionSequences& sequences, std::int32_t b) {
  if (sequences.cu_k == nullptr) return sequences.k_rows;
  return sequences.cu_k[b + 1] - sequences.cu_k[b];
}

// Behind the last row of sequence b that is there, of `rows` rows.
std::int64_t end_of(const AttentionSequences& sequences, std::int32_t b, std::int32_t rows) {
  if (sequences.appends) {
    const std::int32_t queries =
        sequences.cu_q == nullptr ? sequences.q_rows : sequences.cu_q[b + 1] - sequences.cu_q[b];
    const std::int32_t had =
        sequences.lengths_k == nullptr ? sequences.had : sequences.lengths_k[b];
    return std::int64_t{had} + queries;
  }
  return sequences.lengths_k == nullptr ? rows : sequences.lengths_k[b];
}

// That the pages with keys [first, end) of sequence b exist.
void check_pages(const AttentionPages& pages, std::int32_t b, std::int32_t first,
                 std::int32_t end) {
  if (pages.table == nullptr || first >= end) return;
  const auto rows = static_cast<std::int32_t>(pages.rows.value());
  for (std::int32_t number = first / rows; number <= (end - 1) / rows; ++number) {
    const std::int32_t page = pages.table[b * pages.stride + number];
    if (page >= 0 && page < pages.count) continue;
    throw_invalid("pages", fmt::format("values from 0 to {}, the pages of k", pages.count - 1),
                  fmt::format("{} at ({}, {})", page, b, number));
  }
}

}  // namespace

void check_lengths(const AttentionSequences& sequences, const AttentionPages& pages) {
  check_cumulative(sequences.appends ? "cu_new" : "cu_q", sequences.cu_q, sequences.count,
                   sequences.q_rows, sequences.max_q);
  check_cumulative("cu_k", sequences.cu_k, sequences.count, sequences.k_rows, sequences.max_k);
  const std::string_view lengths = sequences.appends ? "lengths" : "lengths_k";
  const bool has_lengths = sequences.appends || sequences.lengths_k != nullptr;
  for (std::int32_t b = 0; b < sequences.count; ++b) {
    const std::int32_t rows = rows_of(sequences, b);
    const std::int64_t end = end_of(sequences, b, rows);
    if (end < 0 || end > rows) {
      throw_invalid(lengths, fmt::format("values from 0 to {}, the rows of sequence {}", rows, b),
                    fmt::format("{} at {}", end, b));
    }
    if (has_lengths && end > sequences.max_k) {
      throw_invalid(lengths,
                    fmt::format("sequences of at most {} rows, as max_k says", sequences.max_k),
                    fmt::format("{} at {}", end, b));
    }
    const std::int32_t first = sequences.first_k == nullptr ? 0 : sequences.first_k[b];
    if (first < 0 || first > end) {
      throw_invalid("first_k", fmt::format("values from 0 to {}, the end of sequence {}", end, b),
                    fmt::format("{} at {}", first, b));
    }
    check_pages(pages, b, first,
                static_cast<std::int32_t>(std::min<std::int64_t>(end, sequences.max_k)));
  }
}

}  // namespace ps::attending
