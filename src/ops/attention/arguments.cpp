#include "ops/attention/arguments.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <span>
#include <string>
#include <string_view>

#include "ops/arguments.h"
#include "penstock/base/error.h"

namespace ps::attending {
namespace {

using detail::AttentionReach;
using detail::AttentionSequences;
using detail::AttentionStrides;
using detail::AttentionWork;
using detail::AttentionWorkspace;
using detail::check_apart;
using detail::check_contiguous;
using detail::check_distinct_elements;
using detail::check_last_contiguous;
using detail::check_memory;
using detail::check_same_type;
using detail::check_shape;
using detail::check_type;
using detail::described;
using detail::given;
using detail::Named;
using detail::throw_invalid;

constexpr std::int64_t most_rows = detail::attention_most_rows;
constexpr std::int64_t most_heads = 65535;
constexpr std::int64_t most_sequences = 1 << 24;
constexpr std::int64_t most_dim = 256;
constexpr std::int64_t dim_multiple = 8;
constexpr std::size_t row_alignment = 16;  // bytes, on a GPU

struct Views {
  Named q, k, v, sinks, cu_q, cu_k, first_k, lengths_k, lse, out;

  explicit Views(const AttentionOptions& options)
      : q{"q", options.q},
        k{"k", options.k},
        v{"v", options.v},
        sinks{"sinks", options.sinks},
        cu_q{"cu_q", options.cu_q},
        cu_k{"cu_k", options.cu_k},
        first_k{"first_k", options.first_k},
        lengths_k{"lengths_k", options.lengths_k},
        lse{"lse", options.lse},
        out{"out", options.out} {}

  // The inputs, then the results.
  std::array<Named, 10> all() const {
    return {q, k, v, sinks, cu_q, cu_k, first_k, lengths_k, lse, out};
  }
};

// The extents of (sequences, rows, heads, dimension), or of (rows, heads, dimension) with
// cumulative lengths.
struct Extents {
  std::int64_t sequences = 0, rows = 0, heads = 0, dim = 0;
};

void check_range(const Named& argument, std::string_view what, std::int64_t value,
                 std::int64_t least, std::int64_t most) {
  if (value >= least && value <= most) return;
  throw_invalid(argument.name(), fmt::format("{} from {} to {}", what, least, most),
                fmt::format("{} in {}", value, described(argument.view)));
}

void check_cumulative(const Named& cumulative) {
  check_type(cumulative, {DType::i32});
  if (cumulative.view.rank() == 1 && cumulative.view.extent(0) > 0) return;
  throw_invalid(cumulative.name(), "shape (B + 1): where each sequence begins, and the end",
                described(cumulative.view));
}

Extents extents(const Named& argument, const Named& cumulative) {
  const TensorView& view = argument.view;
  const bool several_lengths = given(cumulative.view);
  if (view.rank() != (several_lengths ? 3 : 4)) {
    throw_invalid(argument.name(),
                  several_lengths ? fmt::format("shape (rows, heads, dimension), because of {}",
                                                cumulative.name())
                                  : std::string("shape (sequences, rows, heads, dimension)"),
                  described(view));
  }
  if (several_lengths) check_cumulative(cumulative);
  Extents found;
  found.sequences = several_lengths ? cumulative.view.extent(0) - 1 : view.extent(0);
  const std::size_t row = view.rank() - 3;
  found.rows = view.extent(row);
  found.heads = view.extent(row + 1);
  found.dim = view.extent(row + 2);
  check_range(several_lengths ? cumulative : argument, "sequences", found.sequences, 0,
              most_sequences);
  check_range(argument, "rows", found.rows, 0, most_rows - 1);
  check_range(argument, "heads", found.heads, 1, most_heads);
  check_range(argument, "a head dimension", found.dim, dim_multiple, most_dim);
  if (found.dim % dim_multiple != 0) {
    throw_invalid(argument.name(),
                  fmt::format("a head dimension that is a multiple of {}", dim_multiple),
                  fmt::format("{} in {}", found.dim, described(view)));
  }
  return found;
}

// The shape of `like` with another head dimension.
void check_like(const Named& argument, const Named& like, std::int64_t dim,
                std::string_view meaning) {
  const std::span<const std::int64_t> shape = like.view.shape();
  if (shape.size() == 3) return check_shape(argument, {shape[0], shape[1], dim}, meaning);
  check_shape(argument, {shape[0], shape[1], shape[2], dim}, meaning);
}

AttentionStrides strides_of(const TensorView& view) {
  const std::size_t row = view.rank() - 3, head = row + 1, last = row + 2;
  // For a single index the stride has no meaning, and the one of a contiguous view is taken.
  const auto stride = [&](std::size_t dimension, std::int64_t usual) {
    return view.elements() == 0 || view.extent(dimension) < 2 ? usual : view.strides()[dimension];
  };
  AttentionStrides found;
  found.head = stride(head, view.extent(last));
  found.row = stride(row, view.extent(head) * view.extent(last));
  if (view.rank() == 4)
    found.batch = stride(0, view.extent(row) * view.extent(head) * view.extent(last));
  return found;
}

// On a GPU rows begin at multiples of 16 bytes.
void check_rows(const Named& argument, const Device& device) {
  check_last_contiguous(argument);
  const TensorView& view = argument.view;
  if (device.kind() == DeviceKind::cpu || view.elements() == 0) return;
  detail::check_alignment(argument, row_alignment);
  const auto each = static_cast<std::int64_t>(row_alignment / size_of(view.dtype()));
  for (std::size_t d = 0; d + 1 < view.rank(); ++d) {
    if (view.extent(d) < 2 || view.strides()[d] % each == 0) continue;
    throw_invalid(
        argument.name(),
        fmt::format("strides that are multiples of {} elements (16 bytes) on a GPU", each),
        fmt::format("{} with stride {} in dimension {}", view.describe(), view.strides()[d], d));
  }
}

void check_optional_array(const Named& argument, std::int64_t count, std::string_view meaning,
                          std::initializer_list<DType> types) {
  if (!given(argument.view)) return;
  check_shape(argument, {count}, meaning);
  check_type(argument, types);
}

// The most rows of a sequence.
std::int32_t most(std::string_view name, std::int64_t asked, std::int64_t rows) {
  if (asked < 0) throw_invalid(name, "0 or more", std::to_string(asked));
  return static_cast<std::int32_t>(asked == 0 || asked > rows ? rows : asked);
}

std::int32_t reach(std::string_view name, std::int64_t window) {
  if (window < -1) throw_invalid(name, "-1 or more", std::to_string(window));
  if (window == -1 || window >= most_rows) return detail::attention_unlimited;
  return static_cast<std::int32_t>(window);
}

AttentionReach reach(const AttentionOptions& options) {
  AttentionReach both{reach("window_left", options.window_left),
                      reach("window_right", options.window_right)};
  if (options.causal) both.right = 0;
  return both;
}

void check_numbers(const AttentionOptions& options) {
  if (!std::isfinite(options.scale)) {
    throw_invalid("scale", "a finite number", fmt::format("{}", options.scale));
  }
  if (!(options.softcap >= 0) || !std::isfinite(options.softcap)) {
    throw_invalid("softcap", "a finite number of 0 or more", fmt::format("{}", options.softcap));
  }
  if (options.kernel > AttentionKernel::sm90) {
    throw_invalid("kernel", "best, portable or sm90",
                  std::to_string(static_cast<int>(options.kernel)));
  }
}

struct Shapes {
  Extents q, k, v;
};

Shapes check_shapes_and_types(const Views& views) {
  const Shapes shapes{extents(views.q, views.cu_q), extents(views.k, views.cu_k),
                      extents(views.v, views.cu_k)};
  const auto& [q, k, v] = shapes;
  check_type(views.q, {DType::bf16, DType::f16, DType::f32});
  for (const Named* each : {&views.k, &views.v, &views.out}) check_same_type(*each, views.q);
  if (k.sequences != q.sequences) {
    throw_invalid(given(views.cu_k.view) ? "cu_k" : "k",
                  fmt::format("{} sequences, as in q", q.sequences),
                  fmt::format("{} sequences", k.sequences));
  }
  check_like(views.k, views.k, q.dim, "the head dimension of q");
  check_like(views.v, views.k, v.dim, "sequences, rows and heads of k");
  check_like(views.out, views.q, v.dim, "sequences, rows and heads of q, head dimension of v");
  if (q.heads % k.heads != 0) {
    throw_invalid("q", fmt::format("heads that are a multiple of the {} heads of k", k.heads),
                  fmt::format("{} in {}", q.heads, described(views.q.view)));
  }
  check_optional_array(views.sinks, q.heads, "one per head of q",
                       {DType::f32, DType::bf16, DType::f16});
  for (const Named* each : {&views.first_k, &views.lengths_k}) {
    check_optional_array(*each, q.sequences, "one per sequence", {DType::i32});
  }
  if (given(views.lse.view)) {
    check_type(views.lse, {DType::f32});
    if (given(views.cu_q.view)) {
      check_shape(views.lse, {q.heads, q.rows}, "heads and rows of q");
    } else {
      check_shape(views.lse, {q.sequences, q.heads, q.rows}, "sequences, heads and rows of q");
    }
  }
  return shapes;
}

void check_memories(const Views& views, const Device& device) {
  for (const Named* each : {&views.q, &views.k, &views.v, &views.out}) check_rows(*each, device);
  for (const Named* each :
       {&views.sinks, &views.cu_q, &views.cu_k, &views.first_k, &views.lengths_k, &views.lse}) {
    check_contiguous(*each);
  }
  const auto all = views.all();
  for (const Named& each : all) check_memory(each, device);
  check_distinct_elements(views.out);
  check_apart(views.out, std::span(all).first(all.size() - 1));
  check_apart(views.lse, std::span(all).first(all.size() - 2));
}

AttentionSequences sequences_of(const AttentionOptions& options, const Shapes& shapes) {
  const auto array = [](const TensorView& view) {
    return static_cast<const std::int32_t*>(view.data());
  };
  return {.count = static_cast<std::int32_t>(shapes.q.sequences),
          .q_rows = static_cast<std::int32_t>(shapes.q.rows),
          .k_rows = static_cast<std::int32_t>(shapes.k.rows),
          .max_q = most("max_q", options.max_q, shapes.q.rows),
          .max_k = most("max_k", options.max_k, shapes.k.rows),
          .cu_q = array(options.cu_q),
          .cu_k = array(options.cu_k),
          .first_k = array(options.first_k),
          .lengths_k = array(options.lengths_k)};
}

AttentionWorkspace sized(const Extents& q, bool several_lengths) {
  return detail::attention_workspace(q.rows, q.sequences, several_lengths);
}

void check_workspace(const AttentionOptions& options, const Views& views, std::size_t bytes,
                     const Device& device) {
  if (device.kind() == DeviceKind::cpu) return;
  if (options.workspace.data == nullptr) return detail::check_pool(options.pool, bytes, device);
  detail::check_workspace(options.workspace, bytes, device, views.all());
}

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

}  // namespace

AttentionWorkspace sized(const AttentionOptions& options) {
  const Views views(options);
  return sized(extents(views.q, views.cu_q), given(options.cu_q));
}

AttentionWork checked(const AttentionOptions& options, const Device& device) {
  const Views views(options);
  const Shapes shapes = check_shapes_and_types(views);
  check_numbers(options);
  AttentionWork work;
  work.sequences = sequences_of(options, shapes);
  work.reach = reach(options);
  check_memories(views, device);
  work.space = sized(shapes.q, given(options.cu_q));
  check_workspace(options, views, work.space.bytes, device);
  if (device.kind() != DeviceKind::cpu) work.memory = options.workspace.data;
  work.heads_q = static_cast<std::int32_t>(shapes.q.heads);
  work.heads_k = static_cast<std::int32_t>(shapes.k.heads);
  work.dim = static_cast<std::int32_t>(shapes.q.dim);
  work.dim_v = static_cast<std::int32_t>(shapes.v.dim);
  work.type = options.q.dtype();
  work.kernel = options.kernel;
  work.q = options.q.data();
  work.k = options.k.data();
  work.v = options.v.data();
  work.out = options.out.data();
  work.q_strides = strides_of(options.q);
  work.k_strides = strides_of(options.k);
  work.v_strides = strides_of(options.v);
  work.out_strides = strides_of(options.out);
  work.lse = static_cast<float*>(options.lse.data());
  const bool several_lengths = given(options.cu_q);
  work.lse_strides = {.batch = several_lengths ? 0 : shapes.q.heads * shapes.q.rows,
                      .row = 1,
                      .head = shapes.q.rows};
  work.scale =
      options.scale != 0 ? options.scale : 1.F / std::sqrt(static_cast<float>(shapes.q.dim));
  work.softcap = options.softcap;
  work.sinks = options.sinks.data();
  work.sink_type = options.sinks.dtype();
  return work;
}

void check_lengths(const AttentionSequences& sequences) {
  check_cumulative("cu_q", sequences.cu_q, sequences.count, sequences.q_rows, sequences.max_q);
  check_cumulative("cu_k", sequences.cu_k, sequences.count, sequences.k_rows, sequences.max_k);
  for (std::int32_t b = 0; b < sequences.count; ++b) {
    const std::int32_t rows = rows_of(sequences, b);
    const std::int32_t end = sequences.lengths_k == nullptr ? rows : sequences.lengths_k[b];
    if (end < 0 || end > rows) {
      throw_invalid("lengths_k",
                    fmt::format("values from 0 to {}, the rows of sequence {}", rows, b),
                    fmt::format("{} at {}", end, b));
    }
    const std::int32_t first = sequences.first_k == nullptr ? 0 : sequences.first_k[b];
    if (first < 0 || first > end) {
      throw_invalid("first_k", fmt::format("values from 0 to {}, the end of sequence {}", end, b),
                    fmt::format("{} at {}", first, b));
    }
  }
}

}  // namespace ps::attending
