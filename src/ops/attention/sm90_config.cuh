// Tile shapes, shared memory and arguments of the attention kernels on Hopper.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ops/attention/sm90_blocks.h"
#include "ops/attention/work.h"
#include "penstock/kit/barrier.cuh"
#include "penstock/kit/piece_store.cuh"
#include "penstock/kit/ring.h"
#include "penstock/kit/scheduler.h"
#include "penstock/kit/tensor_map.h"
#include "penstock/kit/tile.h"

namespace ps::detail {

// `dim` and `dim_v` are the head dimensions, `consumers` the warpgroups that have 64 queries of a
// tile each, `keys` the size of a block of keys, and `stages` the blocks of K, and of V, that fit
// into shared memory. With `general`, sequences may have several lengths, and softcap, sinks and
// windows on the left are possible; without, there is only the mask `causal` or none.
template <class Element_, unsigned dim_, unsigned dim_v_, unsigned consumers_, unsigned keys_,
          unsigned stages_, bool general_>
struct AttentionConfig {
  using Element = Element_;
  static constexpr unsigned dim = dim_, dim_v = dim_v_, consumers = consumers_, stages = stages_;
  static constexpr bool general = general_;
  static constexpr unsigned rows = 64 * consumers;  // queries of a tile
  static constexpr int keys = keys_;
  static constexpr unsigned threads = (1 + consumers) * kit::warpgroup_threads;

  // Registers per thread, of those that the launch gives: 168 with two consumers, 128 with three.
  static constexpr unsigned loader_registers = consumers == 3 ? 32 : 40;
  static constexpr unsigned consumer_registers = consumers == 3 ? 160 : 232;

  // With a small head dimension, tiles of the next queries are loaded while this one is computed,
  // and results have memory of their own. Otherwise they are stored through the queries' memory.
  static constexpr bool own_out = dim <= 128;
  static constexpr unsigned query_stages = own_out ? 2 : 1;
  // The sums are rescaled before the product that adds to them is issued, not at the end of the
  // step before: they are so many that the products would wait.
  static constexpr bool rescales_late = dim_v > 128;
  // Consumers issue their products in turn.
  static constexpr bool takes_turns = consumers == 3;
  // In a causal tile the upper consumer needs only the left half of the last block.
  static constexpr bool halves = rows == 128 && keys == 128;

  static constexpr kit::Swizzle swizzle =
      dim % 64 == 0 && dim_v % 64 == 0 ? kit::Swizzle::b128 : kit::Swizzle::b64;
  using TileQ = kit::SharedTile<Element, 64, dim, kit::Major::k, swizzle>;  // of one consumer
  using TileK = kit::SharedTile<Element, keys_, dim, kit::Major::k, swizzle>;
  using TileV = kit::SharedTile<Element, dim_v, keys_, kit::Major::mn, swizzle>;
  static constexpr unsigned panel = TileQ::span_elements;  // columns that one tensor copy loads
  static constexpr unsigned pieces = (dim_v + 63) / 64;
  using Store = kit::PieceStore<Element, pieces>;

  using Blocks = AttentionTileBlocks<keys>;
  static_assert(keys % 16 == 0 && (!halves || keys % 32 == 0));
  // The first block of a short sequence begins with its first key; others end with its last key, or
  // half a block behind it.
  static_assert(keys <= attention_rows_behind);
};

// A tile of queries of one head. `sequence` is negative behind the last tile.
struct alignas(16) AttentionTile {
  int sequence;
  int head;
  int row;       // the first row, in q and out
  int rows;      // how many, at most the configuration's
  int position;  // of the first row among the keys
  int key;       // the first key of the sequence, as a row of k
  int keys;      // of the sequence
  int padding;
};
static_assert(sizeof(AttentionTile) == attention_tile_bytes);

// How blocks take tiles. A grid has sequence and head as its row; a table has only the head.
struct AttentionOrder {
  kit::GroupedOrder grid;
  kit::Divisor heads{};                  // query heads
  unsigned group = 1;                    // query heads that are computed together, of a table
  const AttentionTile* table = nullptr;  // tiles without head, longest first; null: a grid
  const unsigned* table_count = nullptr;
  unsigned* taken = nullptr;  // counts tiles that blocks took after their first; null: fixed stride
};

struct AttentionArguments {
  kit::TensorMap q, k, v, out;  // {sequences, heads, rows, dimension}; of k and v {pages, ...}
  AttentionOrder order;
  AttentionSequences sequences;
  AttentionPages pages;
  int box_rows;  // of k and v: what one tensor copy loads, a whole block if not in pages
  AttentionReach reach;
  kit::Divisor group;  // query heads per head of k
  // exp(s) of a score s = q . k is computed as 2^(scale * s). With a softcap, as
  // 2^(scale * tanh(s)), where e^(2 s) is 2^(cap_scale * q . k).
  float scale, cap_scale;  // cap_scale is 0 without a softcap
  const void* sinks;
  DType sink_type;
  void* out_data;  // for rows of tiles that tensor stores cannot limit
  AttentionStrides out_strides, lse_strides;
  float* lse;
};

// The kernel's dynamic shared memory, aligned to 1024 bytes.
template <class Config>
struct AttentionShared {
  struct None {};
  using Store = typename Config::Store;

  alignas(1024) unsigned char q[Config::query_stages][Config::consumers][Config::TileQ::bytes];
  alignas(1024) unsigned char k[Config::stages][Config::TileK::bytes];
  alignas(1024) unsigned char v[Config::stages][Config::TileV::bytes];
  std::conditional_t<Config::own_out, typename Store::Shared[Config::consumers], None> own_out;

  AttentionTile tiles[Config::query_stages];
  typename Config::Blocks blocks[Config::query_stages];
  kit::Ring<kit::Barrier, Config::query_stages> q_ring;
  kit::Ring<kit::Barrier, Config::stages> k_ring, v_ring;

  // Blocks of V with rows behind the sequence, which a warp sets to zero before consumers get them.
  struct Patch {
    int stage;  // of the ring of V; negative: the end
    int rows;   // that are in the sequence
  };
  Patch patches[Config::stages];
  kit::Ring<kit::Barrier, Config::stages> patch_ring;

  __device__ typename Store::Shared& out(unsigned consumer) {
    if constexpr (Config::own_out) {
      return own_out[consumer];
    } else {
      static_assert(sizeof(typename Store::Shared) <= Config::TileQ::bytes);
      return *reinterpret_cast<typename Store::Shared*>(q[0][consumer]);
    }
  }
};

}  // namespace ps::detail
