// Launches the attention kernels on Hopper.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/attention/sm90.h"
#include "ops/attention/sm90_kernel.cuh"
#include "penstock/kit/launch.cuh"
#include "penstock/kit/tensor_map.h"

namespace ps::detail {

// Without `general`, rows beyond the sequences must be outside the maps: loads then fill them with
// zeros, and stores leave them out.
template <class Config>
struct AttentionMaps {
  const AttentionWork& work;
  Place place;

  kit::TensorMap map(const void* data, std::int64_t heads, std::int64_t rows, std::int64_t dim,
                     const AttentionStrides& strides, std::int64_t box_rows, std::int64_t columns,
                     kit::Swizzle swizzle) const {
    // Sequences one after the other have a stride of 0 between sequences.
    const std::int64_t extents[] = {work.sequences.count, heads, rows, dim};
    const std::int64_t steps[] = {strides.batch, strides.head, strides.row, 1};
    return kit::encode(
        {.tensor = TensorView(const_cast<void*>(data), work.type, extents, steps, place),
         .box = {1, 1, box_rows, columns},
         .swizzle = swizzle,
         .l2_promotion = kit::L2Promotion::b256});
  }

  std::int64_t q_rows() const {
    return Config::general ? work.sequences.q_rows : work.sequences.max_q;
  }
  std::int64_t k_rows() const {
    return Config::general ? work.sequences.k_rows : work.sequences.max_k;
  }
  kit::TensorMap q() const {
    return map(work.q, work.heads_q, q_rows(), work.dim, work.q_strides, 64, Config::panel,
               Config::swizzle);
  }
  kit::TensorMap k() const {
    return map(work.k, work.heads_k, k_rows(), work.dim, work.k_strides, Config::keys,
               Config::panel, Config::swizzle);
  }
  kit::TensorMap v() const {
    return map(work.v, work.heads_k, k_rows(), work.dim_v, work.v_strides, Config::keys,
               Config::panel, Config::swizzle);
  }
  kit::TensorMap out() const {
    using Store = typename Config::Store;
    return map(work.out, work.heads_q, q_rows(), work.dim_v, work.out_strides, Store::rows,
               Store::columns, kit::Swizzle::b128);
  }
};

// Query heads whose tiles are computed together, all `rows` of them being heads of k: as many as
// have keys and values that stay in the L2 cache, in groups of nearly equal size.
inline std::int64_t attention_head_group(const AttentionWork& work, std::int64_t rows,
                                         std::int64_t keys) {
  constexpr std::int64_t cache = 32 << 20;  // bytes, of 50 MB or more
  const std::int64_t bytes = keys * (work.dim + work.dim_v) * 2;
  const std::int64_t most = std::clamp<std::int64_t>(cache / bytes, 1, rows);
  const std::int64_t groups = (rows + most - 1) / most;
  return (rows + groups - 1) / groups * work.group();
}

template <class Config>
AttentionOrder attention_order(const AttentionWork& work) {
  const AttentionSequences& sequences = work.sequences;
  auto* const counters = reinterpret_cast<unsigned*>(work.memory + work.space.counters);
  AttentionOrder order{.grid = kit::GroupedOrder(0, 0),
                       .heads = kit::Divisor(static_cast<unsigned>(work.heads_q))};
  if (attention_counts_tiles(work)) order.taken = counters;
  if (sequences.cu_q != nullptr) {
    const std::int64_t keys = sequences.cu_k != nullptr
                                  ? std::int64_t{sequences.k_rows}
                                  : std::int64_t{sequences.count} * sequences.max_k;
    order.group = static_cast<unsigned>(attention_head_group(work, work.heads_k, keys));
    order.table = reinterpret_cast<const AttentionTile*>(work.memory + work.space.tiles);
    order.table_count = counters + 1;
    return order;
  }
  const std::int64_t columns = (sequences.max_q + Config::rows - 1) / Config::rows;
  const std::int64_t heads = std::int64_t{sequences.count} * work.heads_q;
  const std::int64_t group =
      order.taken == nullptr ? work.group()
                             : attention_head_group(work, heads / work.group(), sequences.max_k);
  order.grid = kit::GroupedOrder(static_cast<std::uint64_t>(heads),
                                 static_cast<std::uint64_t>(columns), static_cast<unsigned>(group));
  return order;
}

template <class Config>
void launch_attention(const AttentionWork& work, Place place, cudaStream_t stream) {
  constexpr float log2_e = 1.4426950408889634f;
  const AttentionMaps<Config> maps{work, place};
  const AttentionOrder order = attention_order<Config>(work);
  const bool capped = work.softcap > 0.f;
  const AttentionArguments arguments{
      .q = maps.q(),
      .k = maps.k(),
      .v = maps.v(),
      .out = maps.out(),
      .order = order,
      .sequences = work.sequences,
      .reach = work.reach,
      .group = kit::Divisor(static_cast<unsigned>(work.group())),
      .scale = (capped ? work.softcap : work.scale) * log2_e,
      .cap_scale = capped ? 2.f * log2_e * work.scale / work.softcap : 0.f,
      .sinks = work.sinks,
      .sink_type = work.sink_type,
      .out_data = work.out,
      .out_strides = work.out_strides,
      .lse_strides = work.lse_strides,
      .lse = work.lse,
  };
  if (order.taken != nullptr) attention_prepare_sm90(work, Config::rows, stream);

  kit::LaunchOptions options;
  options.block = Config::threads;
  options.shared_bytes = sizeof(AttentionShared<Config>);
  options.overlaps_previous = true;
  const std::int64_t tiles = order.table != nullptr ? work.space.most_tiles * work.heads_q
                                                    : std::int64_t{order.grid.count()};
  const auto resident = std::int64_t{kit::resident_clusters(attention_kernel<Config>, options)};
  options.grid = static_cast<unsigned>(std::min(resident, tiles));
  kit::launch(attention_kernel<Config>, options, stream, arguments);
}

// Tile shapes of 64 * consumers queries by a block of keys.
template <class Element, bool general>
void attention_sm90(const AttentionWork& work, Place place, cudaStream_t stream) {
  switch (work.dim) {
    case 64:
      if constexpr (!general) {
        if (attention_tall(work.sequences.max_q)) {
          return launch_attention<AttentionConfig<Element, 64, 64, 3, 128, 3, general>>(work, place,
                                                                                        stream);
        }
      }
      return launch_attention<AttentionConfig<Element, 64, 64, 2, 128, 3, general>>(work, place,
                                                                                    stream);
    case 96:
      return launch_attention<AttentionConfig<Element, 96, 96, 2, 128, 2, general>>(work, place,
                                                                                    stream);
    case 128:
      return launch_attention<AttentionConfig<Element, 128, 128, 2, 128, 2, general>>(work, place,
                                                                                      stream);
    case 192:
      return launch_attention<AttentionConfig<Element, 192, 128, 2, 128, 2, general>>(work, place,
                                                                                      stream);
    default:
      // The options need registers, so blocks are smaller.
      if constexpr (!general) {
        if (!attention_small_blocks(work.sequences.max_q, work.sequences.max_k, work.reach)) {
          return launch_attention<AttentionConfig<Element, 256, 256, 2, 80, 2, general>>(
              work, place, stream);
        }
      }
      return launch_attention<AttentionConfig<Element, 256, 256, 2, 64, 2, general>>(work, place,
                                                                                     stream);
  }
}

}  // namespace ps::detail
