// Tiles and loaders of the two grouped products of moe(), for the matrix-product engine of the kit.
// The groups are experts; a tile's group is the slot of its expert's weights.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ops/moe/items.h"
#include "ops/moe/sm90_columns.cuh"
#include "penstock/kit/cp_async.cuh"
#include "penstock/kit/gemm/kernel.cuh"

namespace ps::detail {

// Tiles of up to 192 x 256; the second number counts rows of B, which for gate_up are 128 columns
// of h. `depth` is the number of slots in the ring.
template <class Element, unsigned depth>
using MoeConfig = kit::GemmConfig<Element, 192, 256, depth, 1, 2>;

// `Config` for weights of which K, or the other dimension, is contiguous.
template <class Config, kit::Major major>
using MoeConfigFor = std::conditional_t<major == kit::Major::k, Config, kit::MnMajorB<Config>>;

struct MoeCodec {
  __device__ static kit::GemmTile tile(std::uint64_t word) {
    const MoeItem item = MoeItem::unpacked(word);
    return {item.slot, item.first, item.rows,
            item.column * static_cast<unsigned>(moe_item_columns)};
  }
};
using MoeOrder = kit::TableOrder<MoeCodec>;

// The up-projection's loader: rows of x by cp.async, in the order of `source`; gate and up by
// tensor copies that bring them into the order of `Columns` (sm90_columns.cuh).
template <class Config, class Columns>
class MoeGatherLoader {
 public:
  struct Arguments {
    const void* x;
    const unsigned* source;  // of each row: t * K + k
    kit::Divisor choices;    // K
    unsigned row_chunks;     // 16-byte chunks from one row of x to the next
    unsigned chunks;         // in a row
    kit::TensorMap gate_up;  // as Columns says
  };
  static constexpr unsigned threads = kit::warpgroup_threads;
  // One thread announces the bytes of B; each thread's copies arrive by themselves.
  static constexpr unsigned commits = 1 + threads;
  static constexpr unsigned registers = 56;  // 12 rows' addresses, and what the copies need

  __device__ static void prefetch_arguments(const Arguments& arguments) {
    kit::prefetch(arguments.gate_up);
  }

  // Eight threads copy a row's 128 bytes. A thread copies the same chunk of every 16th row, so that
  // the swizzle moves all of them by the same distance.
  __device__ MoeGatherLoader(kit::GemmSlots<Config>& slots, const Arguments& arguments)
      : slots_(slots),
        arguments_(arguments),
        producer_(slots),
        line_(threadIdx.x / 8),
        chunk_(threadIdx.x % 8),
        to_(Config::TileA::offset(line_, chunk_ * 8)) {}

  template <class Before>
  __device__ void load(const kit::GemmTile& tile, unsigned steps, const Before& before) {
    unsigned at[row_count];  // chunks before the copied one; 32 bits hold 64 GiB
#pragma unroll
    for (unsigned j = 0; j < row_count; ++j) {
      // Rows behind the last repeat it: their products are not stored.
      const unsigned row = min(line_ + 16 * j, tile.rows - 1);
      const unsigned token = arguments_.choices.divide(arguments_.source[tile.row + row]);
      at[j] = token * arguments_.row_chunks + chunk_;
    }
    for (unsigned step = 0; step < steps; ++step) {
      before(step);
      const unsigned slot = producer_.acquire();
      auto& full = producer_.full(slot);
      if constexpr (Config::traced) {
        if (threadIdx.x == 0) slots_.issued[slot] = kit::SmSource::now();
      }
      if (threadIdx.x / kit::warp_threads == step % 4 && kit::elect()) {
        full.arrive_expect(Config::TileB::bytes);
        Columns::load(slots_.b[slot], arguments_.gate_up, full, tile.group, tile.column,
                      step * Config::tile_k);
      }
      __syncwarp();
      // In the last step the row may end before the tile: zeros there, since 0 times what lies
      // behind the row could be NaN.
      const unsigned valid = step * 8 + chunk_ < arguments_.chunks ? 16 : 0;
      const auto* const x = static_cast<const unsigned char*>(arguments_.x);
#pragma unroll
      for (unsigned j = 0; j < row_count; ++j) {
        if (16 * j >= tile.rows) continue;  // what is left in the slot is not stored
        kit::cp_async<16>(slots_.a[slot] + to_ + Config::TileA::row_offset(16 * j),
                          x + std::uint64_t{at[j]} * 16, valid);
        at[j] += 8;
      }
      // No proxy fence lies between these copies and the wgmma that reads them: a fence would have
      // to wait for the copies first. Hopper needs none in practice; other kernels rely on that,
      // too.
      kit::cp_async_arrive(full);
    }
  }

  // No thread ends while its copies and arrivals are in flight.
  __device__ void drain() { producer_.drain(); }

 private:
  static constexpr unsigned row_count = Config::tile_m / 16;

  kit::GemmSlots<Config>& slots_;
  const Arguments& arguments_;
  kit::GemmProducer<Config::traced, Config::depth> producer_;
  unsigned line_, chunk_, to_;
};

// The down-projection's loader: both operands by tensor copies, 64 rows of h at a time.
template <class Config>
class MoeDownLoader {
 public:
  struct Arguments {
    kit::TensorMap h;     // boxes of 64 x 64
    kit::TensorMap down;  // K-major: {slots, d, n}, boxes of {1, 256, 64}; else {slots, n, d},
                          // boxes of {1, 64, 64}
  };
  static constexpr unsigned threads = 1;
  static constexpr unsigned commits = 1;
  static constexpr unsigned registers = 40;

  __device__ static void prefetch_arguments(const Arguments& maps) {
    kit::prefetch(maps.h);
    kit::prefetch(maps.down);
  }

  __device__ MoeDownLoader(kit::GemmSlots<Config>& slots, const Arguments& maps)
      : slots_(slots), maps_(maps), producer_(slots.ring) {}

  template <class Before>
  __device__ void load(const kit::GemmTile& tile, unsigned steps, const Before& before) {
    const unsigned units = (tile.rows + 63) / 64;
    const unsigned bytes = units * Config::TileA::row_offset(64) + Config::TileB::bytes;
    for (unsigned step = 0; step < steps; ++step) {
      before(step);
      const unsigned slot = producer_.acquire(bytes);
      if constexpr (Config::traced) slots_.issued[slot] = kit::SmSource::now();
      auto& full = producer_.full(slot);
      const unsigned k = step * Config::tile_k;
      for (unsigned unit = 0; unit < units; ++unit) {
        kit::tensor_load(slots_.a[slot] + Config::TileA::row_offset(64 * unit), maps_.h, full,
                         kit::evict_normal(), tile.row + 64 * unit, k);
      }
      load_down(slots_.b[slot], full, tile, k);
    }
  }

  __device__ void drain() {}

 private:
  using TileB = typename Config::TileB;

  __device__ void load_down(unsigned char* to, kit::Barrier& full, const kit::GemmTile& tile,
                            unsigned k) {
    if constexpr (TileB::major == kit::Major::k) {
      kit::tensor_load(to, maps_.down, full, kit::evict_normal(), tile.group, tile.column, k);
    } else {
#pragma unroll
      for (unsigned column = 0; column < TileB::rows; column += 64) {
        kit::tensor_load(to + TileB::row_offset(column), maps_.down, full, kit::evict_normal(),
                         tile.group, k, tile.column + column);
      }
    }
  }

  kit::GemmSlots<Config>& slots_;
  const Arguments& maps_;
  kit::Producer<kit::Barrier, Config::depth> producer_;
};

}  // namespace ps::detail
