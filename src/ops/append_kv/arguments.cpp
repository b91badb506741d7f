#include "ops/append_kv/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "ops/arguments.h"
#include "penstock/base/error.h"

namespace ps::appending {
namespace {

using detail::AppendRows;
using detail::AppendWork;
using detail::described;
using detail::given;
using detail::Named;
using detail::step;
using detail::throw_invalid;

constexpr std::int64_t most_rows = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t most_sequences = 1 << 24;
constexpr std::int64_t most_heads = 65535;
constexpr std::int64_t most_dim = 4096;

struct Views {
  Named k, v, q, cu_new, pages, cos, sin, positions;
  Named lengths, k_cache, v_cache, q_out;

  explicit Views(const AppendKVOptions& options)
      : k{"k", options.k},
        v{"v", options.v},
        q{"q", options.q},
        cu_new{"cu_new", options.cu_new},
        pages{"pages", options.pages},
        cos{"cos", options.cos},
        sin{"sin", options.sin},
        positions{"positions", options.positions},
        lengths{"lengths", options.lengths},
        k_cache{"k_cache", options.k_cache},
        v_cache{"v_cache", options.v_cache},
        q_out{"q_out", options.q_out} {}

  bool ragged() const { return given(cu_new.view); }
  std::array<Named, 8> inputs() const { return {k, v, q, cu_new, pages, cos, sin, positions}; }
};

// The last dimensions of a view: rows, heads, head dimension.
struct Heads {
  std::int64_t rows = 0, heads = 0, dim = 0;
};

Heads heads_of(const Named& argument, std::size_t rank, std::string_view meaning) {
  const TensorView& view = argument.view;
  if (view.rank() != rank) throw_invalid(argument.name(), std::string(meaning), described(view));
  const Heads found{view.extent(rank - 3), view.extent(rank - 2), view.extent(rank - 1)};
  check_range(argument, "rows", found.rows, 0, most_rows);
  check_range(argument, "heads", found.heads, 1, most_heads);
  check_range(argument, "elements in a head's row", found.dim, 1, most_dim);
  return found;
}

// The new rows: of k, and of v and q, which have the same sequences and rows.
void check_new(const Views& views, AppendWork& work) {
  const bool ragged = views.ragged();
  const std::size_t rank = ragged ? 3 : 4;
  const std::string_view meaning = ragged ? "shape (rows, heads, dimension), because of cu_new"
                                          : "shape (sequences, rows, heads, dimension)";
  check_type(views.k, {DType::bf16, DType::f16, DType::f32});
  const Heads k = heads_of(views.k, rank, meaning), v = heads_of(views.v, rank, meaning);
  std::int64_t sequences = 0;
  if (ragged) {
    check_type(views.cu_new, {DType::i32});
    const TensorView& ends = views.cu_new.view;
    if (ends.rank() != 1 || ends.extent(0) < 1) {
      throw_invalid("cu_new", "shape (B + 1): where the rows of each sequence begin, and the end",
                    described(ends));
    }
    sequences = ends.extent(0) - 1;
  } else {
    sequences = views.k.view.extent(0);
  }
  check_range(ragged ? views.cu_new : views.k, "sequences", sequences, 0, most_sequences);
  work.sequences = static_cast<std::int32_t>(sequences);
  work.each = ragged ? 0 : k.rows;
  work.rows = ragged ? k.rows : sequences * k.rows;
  check_range(views.k, "rows of all sequences", work.rows, 0, most_rows);
  const auto check_like_k = [&](const Named& argument, const Heads& has, std::int64_t heads) {
    check_same_type(argument, views.k);
    const std::array<std::int64_t, 4> shape{sequences, k.rows, heads, has.dim};
    const std::span<const std::int64_t> expected = std::span(shape).last(rank);
    if (std::ranges::equal(argument.view.shape(), expected)) return;
    throw_invalid(argument.name(),
                  fmt::format("shape ({}): sequences and rows of k", fmt::join(expected, ", ")),
                  described(argument.view));
  };
  check_like_k(views.v, v, k.heads);
  work.heads_k = static_cast<std::int32_t>(k.heads);
  work.dim = static_cast<std::int32_t>(k.dim);
  work.dim_v = static_cast<std::int32_t>(v.dim);
  work.type = views.k.view.dtype();
  if (given(views.q.view) != given(views.q_out.view)) {
    const Named& missing = given(views.q.view) ? views.q_out : views.q;
    throw_invalid(missing.name(), "an array, as q and q_out belong together", "none");
  }
  if (!given(views.q.view)) return;
  const Heads q = heads_of(views.q, rank, meaning);
  check_like_k(views.q, {.dim = k.dim}, q.heads);
  check_same_type(views.q_out, views.q);
  check_same_shape(views.q_out, views.q);
  work.heads_q = static_cast<std::int32_t>(q.heads);
}

void check_cache(const Views& views, AppendWork& work) {
  const bool paged = given(views.pages.view);
  const std::string_view meaning = paged
                                       ? "shape (pages, rows of a page, heads, dimension)"
                                       : "shape (sequences, rows of a sequence, heads, dimension)";
  const Heads k = heads_of(views.k_cache, 4, meaning);
  const std::int64_t first = views.k_cache.view.extent(0);
  if (!paged && first != work.sequences) {
    throw_invalid("k_cache",
                  fmt::format("{} sequences, as many as there are new rows for", work.sequences),
                  described(views.k_cache.view));
  }
  check_shape(views.k_cache, {first, k.rows, work.heads_k, work.dim}, "heads and dimension of k");
  check_shape(views.v_cache, {first, k.rows, work.heads_k, work.dim_v},
              "the cache of k, with the dimension of v");
  for (const Named* each : {&views.k_cache, &views.v_cache}) check_same_type(*each, views.k);
  work.page_rows = std::max<std::int64_t>(1, k.rows);
  work.page_count = first;
  work.capacity = k.rows;
  if (!paged) return;
  const TensorView& pages = views.pages.view;
  check_type(views.pages, {DType::i32});
  check_range(views.k_cache, "rows in a page", k.rows, 1, most_rows);
  check_range(views.k_cache, "pages", first, 0, most_rows);
  if (pages.rank() != 2 || pages.extent(0) != work.sequences) {
    throw_invalid("pages", fmt::format("shape ({}, most pages of a sequence)", work.sequences),
                  described(pages));
  }
  check_range(views.pages, "pages of a sequence", pages.extent(1), 0, most_rows);
  work.pages = static_cast<const std::int32_t*>(pages.data());
  work.pages_row = step(pages, 0);
  work.capacity = std::min(pages.extent(1) * k.rows, most_rows);
}

void check_tables(const Views& views, AppendWork& work) {
  const TensorView &cos = views.cos.view, &sin = views.sin.view;
  if (given(cos) != given(sin)) {
    throw_invalid(given(cos) ? "sin" : "cos", "a table, as cos and sin belong together", "none");
  }
  if (!given(cos)) {
    if (given(views.q.view)) throw_invalid("q", "none, without the tables cos and sin", "an array");
    if (!given(views.positions.view)) return;
    throw_invalid("positions", "none, without the tables cos and sin", "an array");
  }
  if (work.type == DType::f32) {
    check_type(views.cos, {DType::f32});
  } else {
    check_type(views.cos, {DType::f32, work.type});
  }
  check_same_type(views.sin, views.cos);
  if (cos.rank() != 2) throw_invalid("cos", "shape (positions, R / 2)", described(cos));
  check_same_shape(views.sin, views.cos);
  check_range(views.cos, "columns, at most half of k's dimension,", cos.extent(1), 1, work.dim / 2);
  check_range(views.cos, "positions", cos.extent(0), 1, most_rows);
  work.rotated = static_cast<std::int32_t>(2 * cos.extent(1));
  work.table_type = cos.dtype();
  work.table_rows = cos.extent(0);
  work.cos = cos.data();
  work.sin = sin.data();
  work.cos_row = step(cos, 0);
  work.sin_row = step(sin, 0);
  const TensorView& positions = views.positions.view;
  if (!given(positions)) return;
  check_type(views.positions, {DType::i32, DType::i64});
  if (views.ragged()) {
    check_shape(views.positions, {work.rows}, "one per new row");
  } else {
    check_shape(views.positions, {work.sequences, work.each}, "one per new row");
  }
  work.positions = positions.data();
  work.wide_positions = positions.dtype() == DType::i64;
}

// Either in memory ranges that are apart, or with elements that alternate.
void check_caches_apart(const Views& views) {
  const TensorView &k = views.k_cache.view, &v = views.v_cache.view;
  if (k.elements() == 0 || v.elements() == 0) return;
  const auto size = static_cast<std::int64_t>(size_of(k.dtype()));
  const std::int64_t apart = static_cast<std::byte*>(v.data()) - static_cast<std::byte*>(k.data());
  const bool alike = std::ranges::equal(k.strides(), v.strides());
  if (!alike || apart % size != 0) return check_apart(views.v_cache, views.k_cache);
  const std::int64_t shape[] = {2, k.extent(0), k.extent(1), k.extent(2),
                                std::max(k.extent(3), v.extent(3))};
  const std::int64_t strides[] = {apart / size, k.strides()[0], k.strides()[1], k.strides()[2],
                                  k.strides()[3]};
  const TensorView both(k.data(), k.dtype(), shape, strides, k.place());
  detail::check_distinct_elements({.argument = "v_cache", .view = both});
}

void check_memories(const Views& views, const Device& device, bool advance) {
  const std::array<Named, 8> inputs = views.inputs();
  for (const Named& each : inputs) check_memory(each, device);
  const Named results[] = {views.k_cache, views.v_cache, views.q_out};
  for (const Named* each : {&views.k, &views.v, &views.q, &views.cos, &views.sin, &views.pages,
                            &views.k_cache, &views.v_cache, &views.q_out}) {
    check_last_contiguous(*each);
  }
  for (const Named* each : {&views.cu_new, &views.lengths, &views.positions}) {
    check_contiguous(*each);
  }
  check_memory(views.lengths, device);
  for (const Named& each : results) {
    check_memory(each, device);
    check_distinct_elements(each);
    check_apart(each, views.lengths);
    for (const Named& input : inputs) {
      const bool in_place = each.argument == "q_out" && input.argument == "q" &&
                            each.view.data() == input.view.data() &&
                            std::ranges::equal(each.view.strides(), input.view.strides());
      if (!in_place) check_apart(each, input);
    }
  }
  check_caches_apart(views);
  check_apart(views.q_out, std::span(results).first(2));
  if (advance) check_apart(views.lengths, inputs);
}

void check_lengths(const AppendKVOptions& options, const Views& views, AppendWork& work) {
  if (given(options.lengths)) {
    check_type(views.lengths, {DType::i32});
    check_shape(views.lengths, {work.sequences}, "one per sequence");
    if (options.length != 0) {
      throw_invalid("length", "0, as there are lengths", std::to_string(options.length));
    }
    // Not even a sequence without rows would have room for them.
    if (work.sequences > 0 && work.each > work.capacity) {
      throw_invalid("k",
                    fmt::format("at most {} new rows, the capacity of the cache", work.capacity),
                    described(options.k));
    }
    work.lengths = static_cast<std::int32_t*>(options.lengths.data());
    work.advance = options.advance;
    return;
  }
  if (options.advance && work.sequences > 0) {
    throw_invalid("lengths", "an array, which `advance` adds to", "none");
  }
  const std::int64_t most = std::max<std::int64_t>(0, work.capacity - work.each);
  const bool fits = work.sequences == 0 || work.each <= work.capacity;
  if (options.length < 0 || options.length > most || !fits) {
    throw_invalid("length",
                  fmt::format("0 or more, and room for {} new rows in a capacity of {}", work.each,
                              work.capacity),
                  std::to_string(options.length));
  }
  work.length = options.length;
}

void check_begins(const AppendWork& work) {
  for (std::int32_t b = 0; work.cu_new != nullptr && b <= work.sequences; ++b) {
    const std::int32_t least = b == 0 ? 0 : work.cu_new[b - 1];
    if (work.cu_new[b] >= least && work.cu_new[b] <= work.rows) continue;
    throw_invalid(
        "cu_new",
        fmt::format("values that do not decrease, from 0 to {}, the number of rows", work.rows),
        fmt::format("{} at {}", work.cu_new[b], b));
  }
}

void check_pages(const AppendWork& work, std::int32_t sequence, std::int64_t first,
                 std::int64_t behind) {
  if (work.pages == nullptr || first >= behind) return;
  for (std::int64_t i = first / work.page_rows; i <= (behind - 1) / work.page_rows; ++i) {
    const std::int32_t page = work.pages[sequence * work.pages_row + i];
    if (page >= 0 && page < work.page_count) continue;
    throw_invalid("pages", fmt::format("pages from 0 to {} for the new rows", work.page_count - 1),
                  fmt::format("{} at [{}, {}]", page, sequence, i));
  }
}

void check_positions(const AppendWork& work, std::int32_t sequence) {
  const std::int64_t count = work.new_rows_of(sequence), length = work.length_of(sequence);
  const std::int64_t begin = work.cu_new != nullptr ? work.cu_new[sequence] : sequence * work.each;
  for (std::int64_t i = 0; work.rotated > 0 && i < count; ++i) {
    const std::int64_t position = work.position_of(begin + i, length + i);
    if (position >= 0 && position < work.table_rows) continue;
    throw_invalid(work.positions != nullptr ? "positions" : "cos",
                  fmt::format("positions from 0 to {}, those in the tables", work.table_rows - 1),
                  fmt::format("{} for row {} of sequence {}", position, i, sequence));
  }
}

}  // namespace

AppendRows rows_of(const TensorView& view) {
  const std::size_t row = view.rank() - 3;
  return {.data = view.data(),
          .batch = row == 0 ? 0 : step(view, 0),
          .row = step(view, row),
          .head = step(view, row + 1)};
}

AppendWork checked(const AppendKVOptions& options, const Device& device) {
  const Views views(options);
  AppendWork work;
  check_new(views, work);
  check_cache(views, work);
  check_tables(views, work);
  check_lengths(options, views, work);
  if (options.pairs > RotaryPairs::neighbours) {
    throw_invalid("pairs", "halves or neighbours", std::to_string(static_cast<int>(options.pairs)));
  }
  check_memories(views, device, options.advance);
  work.pairs = options.pairs;
  work.cu_new = static_cast<const std::int32_t*>(options.cu_new.data());
  work.k = rows_of(options.k);
  work.v = rows_of(options.v);
  work.k_cache = rows_of(options.k_cache);
  work.v_cache = rows_of(options.v_cache);
  if (work.heads_q > 0) {
    work.q = rows_of(options.q);
    work.q_out = rows_of(options.q_out);
  }
  return work;
}

void check_places(const AppendWork& work) {
  check_begins(work);
  for (std::int32_t b = 0; b < work.sequences; ++b) {
    const std::int64_t length = work.length_of(b), count = work.new_rows_of(b);
    if (length < 0 || length + count > work.capacity) {
      throw_invalid(work.lengths != nullptr ? "lengths" : "length",
                    fmt::format("0 or more, and room for {} new rows in a capacity of {}", count,
                                work.capacity),
                    fmt::format("{} rows in sequence {}", length, b));
    }
    check_pages(work, b, length, length + count);
    check_positions(work, b);
  }
}

}  // namespace ps::appending
