#include "penstock/ops/kv_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "host/backend.h"
#include "host/growing_planes.h"
#include "ops/arguments.h"
#include "ops/attention/work.h"
#include "penstock/base/checked.h"
#include "penstock/base/error.h"

namespace ps {
namespace {

using detail::Named;
using detail::throw_invalid;

constexpr std::int64_t most_rows = (std::int64_t{1} << 31) - 1;
constexpr std::int64_t most_layers = 1 << 16;
constexpr std::int64_t most_sequences = 1 << 24;
constexpr std::int64_t most_heads = 65535;
constexpr std::int64_t most_dim = 4096;
// Of a block by default. All planes need their next block at about the same step: the more rows a
// block has, the fewer steps meet the thread in the driver.
constexpr std::size_t block_rows = 512, least_block_rows = 64;
constexpr std::size_t most_block_bytes = std::size_t{32} << 20;  // unless these are fewer rows

void check_within(const char* name, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value >= least && value <= most) return;
  throw_invalid(name, fmt::format("{} to {}", least, most), std::to_string(value));
}

KVCacheOptions checked(KVCacheOptions options) {
  check_within("layers", options.layers, 1, most_layers);
  check_within("sequences", options.sequences, 1, most_sequences);
  check_within("heads", options.heads, 1, most_heads);
  check_within("dim", options.dim, 1, most_dim);
  check_within("dim_v", options.dim_v, 0, most_dim);
  check_within("capacity", options.capacity, 1, most_rows);
  check_within("initial", options.initial, 0, options.capacity);
  check_within("ahead", options.ahead, 0, most_rows);
  if (options.dtype != DType::bf16 && options.dtype != DType::f16 && options.dtype != DType::f32) {
    throw_invalid("dtype", "bf16, f16 or f32", std::string(name(options.dtype)));
  }
  if (options.dim_v == 0) options.dim_v = options.dim;
  return options;
}

// Of all sequences.
std::size_t row_bytes(const KVCacheOptions& options, std::int64_t dim) {
  const std::size_t heads = checked_mul(static_cast<std::size_t>(options.sequences),
                                        static_cast<std::size_t>(options.heads), "sequences");
  return checked_mul(heads, static_cast<std::size_t>(dim) * size_of(options.dtype), "sequences");
}

// Plane 2 * layer holds K, the next one V.
detail::GrowingPlanesOptions planes_of(const KVCacheOptions& options) {
  const std::size_t k = row_bytes(options, options.dim), v = row_bytes(options, options.dim_v);
  detail::GrowingPlanesOptions made{.row_bytes = {},
                                    .capacity = static_cast<std::size_t>(options.capacity),
                                    .block_bytes = options.block_bytes,
                                    .ahead = static_cast<std::size_t>(options.ahead)};
  if (made.block_bytes == 0) {
    const std::size_t row = std::max(k, v);
    const std::size_t least = checked_mul(least_block_rows, row, "block_bytes");
    made.block_bytes =
        std::min(checked_mul(block_rows, row, "block_bytes"), std::max(least, most_block_bytes));
  }
  for (std::int64_t layer = 0; layer < options.layers; ++layer) {
    made.row_bytes.push_back(k);
    made.row_bytes.push_back(v);
  }
  return made;
}

}  // namespace

struct KVCache::State {
  State(const Device& device, const KVCacheOptions& asked)
      : options(checked(asked)),
        planes(device, planes_of(options)),
        lengths(static_cast<std::size_t>(options.layers)) {}

  TensorView rows(std::size_t plane, std::int64_t count) const {
    const std::int64_t dim = plane % 2 == 0 ? options.dim : options.dim_v;
    const std::int64_t sequence = options.heads * dim;
    const std::int64_t shape[] = {options.sequences, count, options.heads, dim};
    const std::int64_t strides[] = {sequence, options.sequences * sequence, dim, 1};
    return {planes.plane(plane), options.dtype, shape, strides, planes.backend().place()};
  }
  // append_kv() would blame the cache, which the caller does not pass.
  void check_like_cache(const Named& argument, std::int64_t dim) const {
    const TensorView& view = argument.view;
    const bool alike = view.rank() == 4 && view.dtype() == options.dtype &&
                       view.extent(0) == options.sequences && view.extent(2) == options.heads &&
                       view.extent(3) == dim;
    if (alike) return;
    throw_invalid(argument.name(),
                  fmt::format("{} of shape ({}, rows, {}, {}), as the cache was made for",
                              name(options.dtype), options.sequences, options.heads, dim),
                  detail::described(view));
  }
  void need(std::int64_t count) { planes.need(with_rows_behind(count)); }
  void shrink(std::int64_t count) { planes.shrink(with_rows_behind(count)); }
  std::int64_t reserved() const {
    const auto mapped = static_cast<std::int64_t>(planes.mapped_rows());
    if (mapped == options.capacity) return mapped;
    return std::max<std::int64_t>(0, mapped - detail::attention_rows_behind);
  }

  KVCacheOptions options;
  detail::GrowingPlanes planes;
  std::vector<std::int64_t> lengths;  // of the layers

 private:
  // attention() on whole_k() and whole_v() knows the rows of a sequence on the device alone, and
  // may load some behind them.
  std::size_t with_rows_behind(std::int64_t count) const {
    if (count == 0) return 0;
    return static_cast<std::size_t>(
        std::min(options.capacity, count + detail::attention_rows_behind));
  }
};

KVCache::KVCache(const Device& device, const KVCacheOptions& options)
    : state_(std::make_unique<State>(device, options)) {
  if (options.initial > 0) state_->need(options.initial);
}
KVCache::~KVCache() = default;
KVCache::KVCache(KVCache&&) noexcept = default;
KVCache& KVCache::operator=(KVCache&&) noexcept = default;

const KVCache::State& KVCache::state_of(std::int64_t layer) const {
  check_within("layer", layer, 0, state_->options.layers - 1);
  return *state_;
}

void KVCache::append(std::int64_t layer, const KVRows& rows, const Stream& stream) {
  state_of(layer);
  State& state = *state_;
  detail::Backend& backend = state.planes.backend();
  if (&stream.impl().backend() != &backend) {
    throw_invalid("stream", "a stream of " + backend.name(),
                  "one of " + stream.impl().backend().name());
  }
  stream.impl().refuse_capture("KVCache::append, whose rows a graph would write again,");
  state.check_like_cache({"k", rows.k}, state.options.dim);
  state.check_like_cache({"v", rows.v}, state.options.dim_v);
  std::int64_t& length = state.lengths[static_cast<std::size_t>(layer)];
  const std::int64_t count = rows.k.extent(1), capacity = state.options.capacity;
  if (count > capacity - length) {
    throw_invalid(
        "k",
        fmt::format("at most {} more rows, as the cache has a capacity of {} and layer {} "
                    "has {}",
                    capacity - length, capacity, layer, length),
        rows.k.describe());
  }
  const std::int64_t end = length + count;
  const auto plane = static_cast<std::size_t>(2 * layer);
  const TensorView k_cache = state.rows(plane, end), v_cache = state.rows(plane + 1, end);
  for (const Named& each :
       {Named{"k", rows.k}, Named{"v", rows.v}, Named{"q", rows.q}, Named{"cos", rows.cos},
        Named{"sin", rows.sin}, Named{"positions", rows.positions}}) {
    detail::check_apart(each, {"the keys of the cache", k_cache});
    detail::check_apart(each, {"the values of the cache", v_cache});
  }
  state.need(std::max(end, *std::ranges::max_element(state.lengths)));
  append_kv({.k = rows.k,
             .v = rows.v,
             .k_cache = k_cache,
             .v_cache = v_cache,
             .length = length,
             .cos = rows.cos,
             .sin = rows.sin,
             .pairs = rows.pairs,
             .positions = rows.positions,
             .q = rows.q,
             .q_out = rows.q_out},
            stream);
  state.planes.use(stream);
  length = end;
}

TensorView KVCache::k(std::int64_t layer) const {
  return state_of(layer).rows(static_cast<std::size_t>(2 * layer), length(layer));
}
TensorView KVCache::v(std::int64_t layer) const {
  return state_of(layer).rows(static_cast<std::size_t>(2 * layer + 1), length(layer));
}
TensorView KVCache::whole_k(std::int64_t layer) const {
  return state_of(layer).rows(static_cast<std::size_t>(2 * layer), state_->options.capacity);
}
TensorView KVCache::whole_v(std::int64_t layer) const {
  return state_of(layer).rows(static_cast<std::size_t>(2 * layer + 1), state_->options.capacity);
}
std::int64_t KVCache::length(std::int64_t layer) const {
  return state_of(layer).lengths[static_cast<std::size_t>(layer)];
}

void KVCache::reserve(std::int64_t rows) {
  check_within("rows", rows, 0, state_->options.capacity);
  state_->need(std::max(rows, *std::ranges::max_element(state_->lengths)));
}
std::int64_t KVCache::reserved() const { return state_->reserved(); }

void KVCache::set_length(std::int64_t rows) {
  if (rows < 0 || rows > reserved()) {
    throw_invalid("rows", fmt::format("0 to {}, the rows that are reserved", reserved()),
                  std::to_string(rows));
  }
  state_->need(rows);  // an earlier shrink() may be about to unmap them
  std::ranges::fill(state_->lengths, rows);
}

void KVCache::crop(std::int64_t rows) {
  check_within("rows", rows, 0, state_->options.capacity);
  for (std::int64_t& length : state_->lengths) length = std::min(length, rows);
}

void KVCache::shrink() { state_->shrink(*std::ranges::max_element(state_->lengths)); }

void KVCache::use(const Stream& stream) { state_->planes.use(stream); }

const KVCacheOptions& KVCache::options() const { return state_->options; }
Device KVCache::device() const { return state_->planes.backend().device(); }
std::size_t KVCache::mapped_bytes() const { return state_->planes.mapped_bytes(); }
std::uint64_t KVCache::waits() const { return state_->planes.waits(); }

}  // namespace ps
