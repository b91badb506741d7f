#include "ops/moe/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "ops/arguments.h"
#include "penstock/base/error.h"

namespace ps::mixture {
namespace {

using detail::check_aligned_rows;
using detail::check_aligned_runs;
using detail::check_apart;
using detail::check_contiguous;
using detail::check_distinct_elements;
using detail::check_last_contiguous;
using detail::check_memory;
using detail::check_multiple;
using detail::check_pool;
using detail::check_range;
using detail::check_rank;
using detail::check_same_type;
using detail::check_shape;
using detail::check_type;
using detail::check_workspace;
using detail::described;
using detail::given;
using detail::MoeWeights;
using detail::MoeWork;
using detail::Named;
using detail::on_cpu;
using detail::stride_or;
using detail::throw_invalid;

constexpr std::int64_t most_choices = 16;
constexpr std::int64_t most_experts = 1024;
constexpr std::int64_t most_slots = 8192;       // the slot of a MoeItem has 13 bits
constexpr std::int64_t most_columns = 1 << 12;  // and the block of columns 12
constexpr std::int64_t most_pairs = (std::int64_t{1} << 31) - 1;
constexpr std::int64_t multiple = 8;                        // of d, n and, on a GPU, of strides
constexpr std::int64_t most_reach = std::int64_t{1} << 36;  // bytes, of the rows of x and out

// The same as check_aligned_rows() for weights, of which rows or columns may be contiguous.
void check_weights(const Named& argument, const Device& device) {
  const TensorView& view = argument.view;
  if (view.elements() == 0) return;
  const std::size_t last = view.rank() - 1;
  const bool by_column = view.strides()[last] != 1;
  if (by_column && view.strides()[last - 1] != 1) {
    throw_invalid(argument.name(), "one of the last two dimensions contiguous (a stride of 1)",
                  fmt::format("{} with strides {} and {}", view.describe(),
                              view.strides()[last - 1], view.strides()[last]));
  }
  if (!on_cpu(device)) check_aligned_runs(argument, by_column ? last - 1 : last);
}

void check_forward(const Named& argument) {
  const TensorView& view = argument.view;
  for (std::size_t d = 0; view.elements() > 0 && d < view.rank(); ++d) {
    if (view.extent(d) < 2 || view.strides()[d] > 0) continue;
    throw_invalid(
        argument.name(), "strides of 1 or more",
        fmt::format("{} with stride {} in dimension {}", view.describe(), view.strides()[d], d));
  }
}

struct Views {
  Named x, gate_up, down, ids, weights, out, slots;
  Named gate_up_bias, down_bias, shared_gate_up, shared_down, shared_weights;

  explicit Views(const MoeOptions& options)
      : x{"x", options.x},
        gate_up{"gate_up", options.gate_up},
        down{"down", options.down},
        ids{"ids", options.ids},
        weights{"weights", options.weights},
        out{"out", options.out},
        slots{"slots", options.slots},
        gate_up_bias{"gate_up_bias", options.gate_up_bias},
        down_bias{"down_bias", options.down_bias},
        shared_gate_up{"shared_gate_up", options.shared_gate_up},
        shared_down{"shared_down", options.shared_down},
        shared_weights{"shared_weights", options.shared_weights} {}

  // The inputs, then the result.
  std::array<Named, 12> all() const {
    return {x,
            gate_up,
            down,
            ids,
            weights,
            slots,
            gate_up_bias,
            down_bias,
            shared_gate_up,
            shared_down,
            shared_weights,
            out};
  }
};

// On a GPU rows of x and out lie in the order of tokens, and chunks of 16 bytes are counted in 32
// bits.
void check_reach(const Views& views) {
  for (const Named* each : {&views.x, &views.out}) {
    const TensorView& view = each->view;
    if (view.elements() == 0) continue;
    const std::int64_t row = stride_or(view, 0, view.extent(1));
    if (row < 0) {
      throw_invalid(each->name(), "rows in ascending order on a GPU",
                    fmt::format("{} with stride {}", view.describe(), row));
    }
    const std::int64_t most = most_reach / static_cast<std::int64_t>(size_of(view.dtype()));
    if (view.extent(0) >= most / std::max(row, view.extent(1))) {
      throw_invalid(each->name(), "rows that reach over less than 64 GiB on a GPU",
                    fmt::format("{} with stride {}", view.describe(), row));
    }
  }
}

// Sizes that the work items and the kernels count in fewer than 64 bits.
void check_limits(const Views& views, const MoeWork& work) {
  if (work.tokens > most_pairs / work.choices) {
    throw_invalid("ids", "fewer than 2^31 ids", views.ids.view.describe());
  }
  const std::int64_t up = detail::moe_up_columns(work.width);
  const std::int64_t down = detail::moe_down_columns(work.hidden);
  check_range(views.gate_up, "n", work.width, multiple,
              most_columns * detail::moe_item_columns / 2);
  check_range(views.x, "d", work.hidden, multiple, most_columns * detail::moe_item_columns);
  const std::int64_t tiles = detail::moe_most_tiles(work.rows(), work.experts);
  if (tiles > most_pairs / (up > down ? up : down)) {
    throw_invalid(
        "x", "tokens for fewer than 2^31 work items of 64 to 192 rows and 256 columns",
        fmt::format("{} with {} experts per token", views.x.view.describe(), work.choices));
  }
}

// The width of the shared expert.
std::int64_t sized_shared(const Views& views, std::int64_t hidden) {
  check_rank(views.shared_gate_up, 2, "(2m, d): rows of gate and up, hidden size");
  const std::int64_t both = views.shared_gate_up.view.extent(0);
  check_range(views.shared_gate_up, "2m", both, 2 * multiple,
              most_columns * detail::moe_item_columns);
  if (both % (2 * multiple) != 0) {
    throw_invalid("shared_gate_up", fmt::format("m that is a multiple of {}", multiple),
                  described(views.shared_gate_up.view));
  }
  check_shape(views.shared_gate_up, {both, hidden}, "rows of gate and up, d as in x");
  return both / 2;
}

MoeWork sized(const Views& views) {
  MoeWork work;
  check_rank(views.x, 2, "(T, d): tokens, hidden size");
  check_type(views.x, {DType::bf16, DType::f16, DType::f32});
  check_rank(views.gate_up, 3, "(S, 2n, d): slots, rows of gate and up, hidden size");
  work.type = views.x.view.dtype();
  work.tokens = views.x.view.extent(0);
  work.hidden = views.x.view.extent(1);
  work.slot_count = views.gate_up.view.extent(0);
  check_multiple(views.x, "d", work.hidden, multiple);
  check_range(views.gate_up, "S", work.slot_count, 0, most_slots);
  const std::int64_t both = views.gate_up.view.extent(1);  // rows of gate and up
  if (both % 2 != 0) {
    throw_invalid("gate_up", "as many rows of gate as of up", described(views.gate_up.view));
  }
  work.width = both / 2;
  check_multiple(views.gate_up, "n", work.width, multiple);
  check_shape(views.gate_up, {work.slot_count, both, work.hidden},
              "slots, rows of gate and up, d as in x");

  work.experts = work.slot_count;
  if (given(views.slots.view)) {
    check_rank(views.slots, 1, "(E): one slot per expert");
    work.experts = views.slots.view.extent(0);
  }
  check_range(given(views.slots.view) ? views.slots : views.gate_up, "E", work.experts, 1,
              most_experts);
  check_rank(views.ids, 2, "(T, K): tokens, experts per token");
  check_type(views.ids, {DType::i32, DType::i64});
  work.choices = views.ids.view.extent(1);
  work.id_type = views.ids.view.dtype();
  check_range(views.ids, "K", work.choices, 1,
              most_choices < work.experts ? most_choices : work.experts);
  check_shape(views.ids, {work.tokens, work.choices}, "tokens as in x, experts per token");
  check_limits(views, work);
  work.space =
      detail::moe_workspace(work.rows(), work.experts, work.hidden, work.width, size_of(work.type));
  if (given(views.shared_gate_up.view)) {
    work.shared_width = sized_shared(views, work.hidden);
    work.shared_space =
        detail::moe_workspace(work.tokens, 1, work.hidden, work.shared_width, size_of(work.type));
  }
  return work;
}

// The shared expert is given whole or not at all.
void check_shared(const Views& views, const MoeWork& work) {
  if (!given(views.shared_gate_up.view)) {
    for (const Named* each : {&views.shared_down, &views.shared_weights}) {
      if (!given(each->view)) continue;
      throw_invalid(each->name(), "none, because there is no shared_gate_up",
                    described(each->view));
    }
    return;
  }
  check_same_type(views.shared_gate_up, views.x);
  check_shape(views.shared_down, {work.hidden, work.shared_width},
              "d as in x, m (half of the rows of shared_gate_up)");
  check_same_type(views.shared_down, views.x);
  if (!given(views.shared_weights.view)) return;
  check_shape(views.shared_weights, {work.tokens}, "one weight per token");
  check_type(views.shared_weights, {DType::f32, DType::bf16, DType::f16});
}

void check_biases(const Views& views, const MoeWork& work) {
  if (given(views.gate_up_bias.view)) {
    check_shape(views.gate_up_bias, {work.slot_count, 2 * work.width},
                "slots and rows as in gate_up");
    check_same_type(views.gate_up_bias, views.x);
  }
  if (given(views.down_bias.view)) {
    check_shape(views.down_bias, {work.slot_count, work.hidden}, "slots and rows as in down");
    check_same_type(views.down_bias, views.x);
  }
}

void check_shapes_and_types(const Views& views, const MoeWork& work) {
  check_same_type(views.gate_up, views.x);
  check_shape(views.down, {work.slot_count, work.hidden, work.width},
              "slots as in gate_up, d as in x, n (half of the rows of gate_up)");
  check_same_type(views.down, views.x);
  check_shape(views.weights, {work.tokens, work.choices}, "one weight per id");
  check_type(views.weights, {DType::f32, DType::bf16, DType::f16});
  check_shape(views.out, {work.tokens, work.hidden}, "the shape of x");
  check_same_type(views.out, views.x);
  if (given(views.slots.view)) check_type(views.slots, {DType::i32});
  check_biases(views, work);
  check_shared(views, work);
}

void check_strides_and_memory(const Views& views, const Device& device) {
  for (const Named* each : {&views.x, &views.out}) {
    check_aligned_rows(*each, device);
    check_memory(*each, device);
  }
  for (const Named* each :
       {&views.gate_up, &views.down, &views.shared_gate_up, &views.shared_down}) {
    check_weights(*each, device);
    check_forward(*each);
    check_memory(*each, device);
  }
  for (const Named* each : {&views.gate_up_bias, &views.down_bias}) {
    check_last_contiguous(*each);
    check_memory(*each, device);
  }
  if (!on_cpu(device)) check_reach(views);
  for (const Named* each : {&views.ids, &views.weights, &views.slots, &views.shared_weights}) {
    check_contiguous(*each);
    check_memory(*each, device);
  }
  check_distinct_elements(views.out);
  const auto all = views.all();
  check_apart(views.out, std::span(all).first(all.size() - 1));
}

void check_activation(const MoeOptions& options) {
  if (options.activation > MoeActivation::clamped_swiglu) {
    throw_invalid("activation", "swiglu, geglu, geglu_tanh or clamped_swiglu",
                  std::to_string(static_cast<int>(options.activation)));
  }
  if (options.activation != MoeActivation::clamped_swiglu) return;
  if (!std::isfinite(options.alpha)) {
    throw_invalid("alpha", "a finite number", fmt::format("{}", options.alpha));
  }
  if (!(options.limit > 0)) {
    throw_invalid("limit", "a number above 0", fmt::format("{}", options.limit));
  }
}

// Where element (row, column) of a slot's weights is.
struct Strides {
  std::int64_t slot = 0, row = 0, column = 1;
};

// The strides of (slots, rows, columns), or of (rows, columns).
Strides strides_of(const TensorView& view) {
  const std::size_t row = view.rank() - 2, column = row + 1;
  if (view.elements() == 0) return {};
  const std::int64_t rows = view.extent(row), columns = view.extent(column);
  Strides found;
  found.column = stride_or(view, column, 1);
  found.row = found.column == 1 ? stride_or(view, row, columns) : 1;
  found.slot = found.column == 1 ? rows * found.row : columns * found.column;
  if (view.rank() == 3) found.slot = stride_or(view, 0, found.slot);
  return found;
}

MoeWeights weights_of(const TensorView& gate_up, const TensorView& down) {
  const Strides first = strides_of(gate_up), second = strides_of(down);
  return {.gate_up = gate_up.data(),
          .gate_up_slot = first.slot,
          .gate_up_row = first.row,
          .gate_up_column = first.column,
          .down = down.data(),
          .down_slot = second.slot,
          .down_row = second.row,
          .down_column = second.column};
}

// What the kernels need besides the sizes.
MoeWork filled(MoeWork work, const MoeOptions& options) {
  work.layout = options.layout;
  work.kernel = options.kernel;
  work.batch_invariant = options.batch_invariant;
  work.x = options.x.data();
  work.x_row = stride_or(options.x, 0, work.hidden);
  work.held = weights_of(options.gate_up, options.down);
  work.held.gate_up_bias = options.gate_up_bias.data();
  work.held.gate_up_bias_slot = stride_or(options.gate_up_bias, 0, 2 * work.width);
  work.held.down_bias = options.down_bias.data();
  work.held.down_bias_slot = stride_or(options.down_bias, 0, work.hidden);
  work.gate = {options.activation, options.alpha, options.limit};
  if (work.shared_width > 0) {
    work.shared = weights_of(options.shared_gate_up, options.shared_down);
    work.shared_weights = options.shared_weights.data();
    work.shared_weight_type = options.shared_weights.dtype();
  }
  work.ids = options.ids.data();
  work.weights = options.weights.data();
  work.weight_type = options.weights.dtype();
  work.slots = static_cast<const std::int32_t*>(options.slots.data());
  work.out = options.out.data();
  work.out_row = stride_or(options.out, 0, work.hidden);
  work.memory = options.workspace.data;
  return work;
}

template <class Id>
void refuse_negative(const MoeWork& work, const Id* ids) {
  for (std::int64_t i = 0; i < work.rows(); ++i) {
    if (ids[i] >= 0) continue;
    throw_invalid(
        "ids", "ids of 0 or more",
        fmt::format("{} at (t, k) = ({}, {})", ids[i], i / work.choices, i % work.choices));
  }
}

}  // namespace

MoeWork sized(const MoeOptions& options) { return sized(Views(options)); }

MoeWork checked(const MoeOptions& options, Workspace workspace, const Device& device) {
  const Views views(options);
  MoeWork work = sized(views);
  check_shapes_and_types(views, work);
  if (options.layout > GateUpLayout::interleaved) {
    throw_invalid("layout", "concatenated or interleaved",
                  std::to_string(static_cast<int>(options.layout)));
  }
  if (options.kernel > MoeKernel::portable) {
    throw_invalid("kernel", "best, sequential, large, decode or portable",
                  std::to_string(static_cast<int>(options.kernel)));
  }
  check_activation(options);
  check_strides_and_memory(views, device);
  if (options.workspace.data != nullptr) {
    check_workspace(options.workspace, work.bytes(), device, views.all());
  } else if (workspace == Workspace::given) {
    throw_invalid("workspace", fmt::format("a workspace of {} bytes", work.bytes()), "none");
  } else {
    check_pool(options.pool, work.bytes(), device);
  }
  return filled(work, options);
}

MoeWork unchecked(const MoeOptions& options) { return filled(sized(options), options); }

void check_ids(const MoeWork& work, const void* ids) {
  if (work.id_type == DType::i64) {
    return refuse_negative(work, static_cast<const std::int64_t*>(ids));
  }
  refuse_negative(work, static_cast<const std::int32_t*>(ids));
}

}  // namespace ps::mixture
