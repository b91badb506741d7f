// The loader of the attention kernels on Hopper: one thread takes tiles and loads their queries,
// keys and values. A second warp sets rows of V behind a sequence to zero.
#pragma once

#include "ops/attention/sm90_config.cuh"
#include "penstock/kit/fence.cuh"
#include "penstock/kit/tma.cuh"

namespace ps::detail {

// The tiles of this block, in one thread.
template <class Config>
class AttentionTiles {
 public:
  __device__ explicit AttentionTiles(const AttentionArguments& arguments)
      : arguments_(arguments), taken_(blockIdx.x) {
    const AttentionOrder& order = arguments.order;
    count_ = order.grid.count();
    if (Config::general && order.table != nullptr) {
      entries_ = *order.table_count;
      count_ = entries_ * order.heads.value();
    }
  }

  __device__ bool take(AttentionTile& tile) {
    const unsigned number = first_ + taken_;
    if (number >= count_) return false;
    tile = at(number);
    first_ = gridDim.x;
    unsigned* const counter = arguments_.order.taken;
    // Used when the next tile is taken, so nothing waits for the counter here.
    taken_ = counter != nullptr ? atomicAdd(counter, 1) : number;
    return true;
  }

 private:
  __device__ AttentionTile at(unsigned number) const {
    const AttentionOrder& order = arguments_.order;
    if (Config::general && order.table != nullptr) return listed(number);
    const kit::Tile place = order.grid.tile(number);
    const unsigned sequence = order.heads.divide(place.row);
    // The last queries of causal sequences have the most keys, so they come first.
    const unsigned row = (order.grid.columns() - 1 - place.column) * Config::rows;
    AttentionTile tile;
    tile.sequence = static_cast<int>(sequence);
    tile.head = static_cast<int>(place.row - sequence * order.heads.value());
    const AttentionSequences& all = arguments_.sequences;
    const AttentionSequence found =
        Config::general ? all(tile.sequence) : AttentionSequence{0, all.max_q, 0, all.max_k};
    tile.row = static_cast<int>(row);
    tile.rows = min(static_cast<int>(Config::rows), found.q_length - tile.row);
    tile.position = tile.row + found.k_length - found.q_length;
    tile.key = found.k_begin;
    tile.keys = found.k_length;
    return tile;
  }

  // Groups of heads; in a group all entries, each for every head.
  __device__ AttentionTile listed(unsigned number) const {
    const AttentionOrder& order = arguments_.order;
    const unsigned first = number / (order.group * entries_) * order.group;
    const unsigned heads = min(order.group, order.heads.value() - first);
    const unsigned in = number - first * entries_;
    const unsigned entry = in / heads;
    AttentionTile tile = order.table[entry];
    tile.head = static_cast<int>(first + in - entry * heads);
    return tile;
  }

  const AttentionArguments& arguments_;
  unsigned first_ = 0, taken_, count_, entries_ = 0;
};

// Used by one thread.
template <class Config>
class AttentionLoader {
  using Shared = AttentionShared<Config>;
  using TileQ = typename Config::TileQ;
  using TileK = typename Config::TileK;
  using TileV = typename Config::TileV;

 public:
  __device__ AttentionLoader(Shared& shared, const AttentionArguments& arguments)
      : shared_(shared),
        arguments_(arguments),
        q_(shared.q_ring),
        k_(shared.k_ring),
        v_(shared.v_ring),
        patches_(shared.patch_ring) {}

  __device__ void run() {
    AttentionTiles<Config> tiles(arguments_);
    for (AttentionTile tile; tiles.take(tile);) load(tile);
    const unsigned stage = q_.acquire();
    shared_.tiles[stage].sequence = -1;
    q_.full(stage).arrive();
    if constexpr (Config::general) {
      const unsigned slot = patches_.acquire();
      shared_.patches[slot].stage = -1;
      patches_.full(slot).arrive();
    }
  }

 private:
  __device__ void load(const AttentionTile& tile) {
    const bool causal = arguments_.reach.right == 0;
    const auto blocks = attention_tile_blocks<Config::keys>(
        tile.position, Config::rows, tile.keys, arguments_.reach,
        Config::halves && causal && !paged() ? Config::keys / 2 : 0, paged());
    const int head = static_cast<int>(arguments_.group.divide(static_cast<unsigned>(tile.head)));
    if (Config::own_out) load_queries(tile, blocks);
    for (int step = 0; step < blocks.count; ++step) {
      const int first = blocks.first_key(blocks.at(step));
      load_keys(tile, head, first);
      load_values(tile, head, first);
      // Results are stored through the queries' memory, so it is free late: the first blocks need
      // not wait for it.
      if (!Config::own_out && step == min(1, blocks.count - 1)) load_queries(tile, blocks);
    }
  }

  // Consumers without queries multiply what is in their part.
  __device__ void load_queries(const AttentionTile& tile, const typename Config::Blocks& blocks) {
    const unsigned stage = q_.acquire();
    shared_.tiles[stage] = tile;
    shared_.blocks[stage] = blocks;
    const int parts = (tile.rows + 63) / 64;
    q_.full(stage).arrive_expect(static_cast<unsigned>(parts) * TileQ::bytes);
    for (int part = 0; part < parts; ++part) {
#pragma unroll
      for (unsigned x = 0; x < TileQ::panels; ++x) {
        kit::tensor_load(shared_.q[stage][part] + x * TileQ::panel_bytes, arguments_.q,
                         q_.full(stage), kit::evict_first(), tile.sequence, tile.head,
                         tile.row + 64 * part, x * Config::panel);
      }
    }
  }

  __device__ void load_keys(const AttentionTile& tile, int head, int first) {
    const unsigned stage = k_.acquire(TileK::bytes);
    load_block<TileK>(shared_.k[stage], arguments_.k, k_.full(stage), tile, head, first);
  }

  __device__ void load_values(const AttentionTile& tile, int head, int first) {
    const int rows = max(0, tile.keys - first);  // that are in the sequence
    // Rows behind the tensor are zero.
    const bool patched = Config::general && rows < Config::keys &&
                         (paged() || tile.key + tile.keys < arguments_.sequences.k_rows);
    const unsigned stage = v_.acquire();
    kit::Barrier* full = &v_.full(stage);
    if (patched) {
      const unsigned slot = patches_.acquire();
      shared_.patches[slot] = {static_cast<int>(stage), rows};
      full = &patches_.full(slot);
    }
    full->arrive_expect(TileV::bytes);
    load_block<TileV>(shared_.v[stage], arguments_.v, *full, tile, head, first);
  }

  // Keys or values [first, first + Config::keys) of a tile's sequence.
  template <class Tile>
  __device__ void load_block(unsigned char* to, const kit::TensorMap& map, kit::Barrier& full,
                             const AttentionTile& tile, int head, int first) {
    if (paged()) {
      const int boxes = Config::keys / arguments_.box_rows;
      for (int box = 0; box < boxes; ++box) {
        const int in_block = box * arguments_.box_rows;
        const AttentionPlace at = place(tile, first + in_block);
        load_box<Tile>(to + static_cast<unsigned>(in_block) * Tile::span_bytes, map, full,
                       static_cast<int>(at.batch), head, static_cast<int>(at.row));
      }
    } else {
      load_box<Tile>(to, map, full, tile.sequence, head, tile.key + first);
    }
  }

  template <class Tile>
  __device__ static void load_box(unsigned char* to, const kit::TensorMap& map, kit::Barrier& full,
                                  int batch, int head, int row) {
#pragma unroll
    for (unsigned x = 0; x < Tile::panels; ++x) {
      kit::tensor_load(to + x * Tile::panel_bytes, map, full, kit::evict_last(), batch, head, row,
                       x * Config::panel);
    }
  }

  __device__ bool paged() const { return Config::general && arguments_.pages.table != nullptr; }

  // Where key `key` of a tile's sequence is. Boxes outside the tensor are zeros: those of pages
  // that do not exist, and those behind the sequence, whose pages are not looked up.
  __device__ AttentionPlace place(const AttentionTile& tile, int key) const {
    const AttentionPages& pages = arguments_.pages;
    AttentionPlace found{0, 0, false};
    if (key < tile.keys) found = pages(tile.sequence, key);
    return found.there ? found : AttentionPlace{pages.count, 0, false};
  }

  Shared& shared_;
  const AttentionArguments& arguments_;
  kit::Producer<kit::Barrier, Config::query_stages> q_;
  kit::Producer<kit::Barrier, Config::stages> k_, v_, patches_;
};

// Sets rows of V behind a sequence to zero: they may hold NaN, and 0 * NaN is NaN. Used by a warp.
template <class Config>
__device__ inline void patch_values(AttentionShared<Config>& shared) {
  using TileV = typename Config::TileV;
  kit::Consumer<kit::Barrier, Config::stages> patches(shared.patch_ring);
  for (;;) {
    const auto patch = shared.patches[patches.wait()];
    if (patch.stage < 0) return;
    for (unsigned x = 0; x < TileV::panels; ++x) {
      unsigned char* const panel = shared.v[patch.stage] + x * TileV::panel_bytes;
      for (unsigned at = patch.rows * TileV::span_bytes + kit::lane_index() * 16;
           at < TileV::panel_bytes; at += 16 * kit::warp_threads) {
        *reinterpret_cast<int4*>(panel + at) = {};
      }
    }
    kit::fence_shared_to_async();
    __syncwarp();
    if (kit::elect()) {
      shared.v_ring.full[patch.stage].arrive();
      patches.release();
    } else {
      patches.skip_release();
    }
    __syncwarp();
  }
}

}  // namespace ps::detail
