// Orders in which blocks take the tiles of a matrix product.
#pragma once

#include <cstdint>

#include "penstock/kit/barrier.cuh"
#include "penstock/kit/gemm/parts.cuh"
#include "penstock/kit/scheduler.h"

namespace ps::kit {

// The tiles of one m x n matrix, in panels of `group` tile rows that keep operands in the L2 cache.
// Block b takes tiles b, b + blocks, ...
template <class Config>
class GridOrder {
 public:
  static constexpr bool takes_clusters = true;
  struct Shared {};

  GridOrder(std::int64_t m, std::int64_t n, unsigned group)
      : grid_(count(m, Config::tile_m), count(n, Config::tile_n), group, Config::cluster),
        m_(static_cast<unsigned>(m)) {}

  const GroupedOrder& grid() const { return grid_; }

  __device__ void init(Shared&, unsigned) const {}

  template <bool warps>
  class Tiles {
   public:
    __device__ Tiles(const GridOrder& order, Shared&, bool)
        : tiles_(order.grid_, blockIdx.x, gridDim.x), m_(order.m_) {}

    __device__ bool take(GemmTile& tile) {
      Tile place;
      if (!tiles_.take(place)) return false;
      const unsigned row = place.row * Config::tile_m;
      // Blocks of a cluster may get tiles below the matrix: they load, and store nothing.
      const unsigned left = m_ > row ? m_ - row : 0;
      tile = {0, row, left < Config::tile_m ? left : Config::tile_m, place.column * Config::tile_n};
      return true;
    }

   private:
    PersistentTiles<GroupedOrder> tiles_;
    unsigned m_;
  };

 private:
  static std::uint64_t count(std::int64_t extent, std::int64_t tile) {
    return static_cast<std::uint64_t>((extent + tile - 1) / tile);
  }

  GroupedOrder grid_;
  unsigned m_;
};

// Tiles from a table in global memory, one 64-bit word each, handed to whichever block is free:
// tiles may need different times. Codec::tile(word) gives the GemmTile; no word is 0. `taken` must
// be 0 when the kernel starts. The results must not depend on which block computes a tile.
//
// One thread of the loader takes numbers and passes words to the others through shared memory. It
// works ahead, so that neither the counter nor the table is waited for: while a tile is loaded, the
// word of the next one is on its way, and so is the number of the one after that.
template <class Codec>
struct TableOrder {
  const std::uint64_t* words;
  const unsigned* count;
  unsigned* taken;

  static constexpr bool takes_clusters = false;  // each block takes its own tiles
  static constexpr unsigned depth = 4;
  struct Shared {
    Ring<Barrier, depth> ring;
    std::uint64_t words[depth];
  };

  __device__ void init(Shared& shared, unsigned readers) const { shared.ring.init(1, readers); }

  template <bool warps>
  class Tiles {
   public:
    __device__ Tiles(const TableOrder& order, Shared& shared, bool leads)
        : order_(order),
          shared_(shared),
          reader_(shared.ring),
          writer_(shared.ring),
          leads_(leads) {
      if (!leads) return;
      taken_ = atomicAdd(order.taken, 2);  // on its way while the first word is loaded
      count_ = *order.count;
      publish(word(blockIdx.x));
      next_ = word(gridDim.x + taken_);
      ++taken_;
    }

    __device__ bool take(GemmTile& tile) {
      std::uint64_t now = shared_.words[reader_.wait()];
      // Lets the compiler see that the warp stays together and has one tile, so that the
      // multiplying loop keeps slots and descriptors in uniform registers.
      if constexpr (warps) {
        __syncwarp();
        now = __shfl_sync(~0u, now, 0);
      }
      const bool ended = now == 0;
      reader_.release();
      if (ended) return false;
      if (leads_) {
        // Nothing here uses what it loads: the next call does.
        publish(next_);
        next_ = word(gridDim.x + taken_);
        taken_ = atomicAdd(order_.taken, 1);
      }
      tile = Codec::tile(now);
      return true;
    }

   private:
    __device__ void publish(std::uint64_t of) {
      shared_.words[writer_.acquire()] = of;
      writer_.commit();
    }
    __device__ std::uint64_t word(unsigned of) const { return of < count_ ? order_.words[of] : 0; }

    const TableOrder& order_;
    Shared& shared_;
    Consumer<Barrier, depth> reader_;
    Producer<Barrier, depth> writer_;
    bool leads_;
    unsigned count_ = 0, taken_ = 0;
    std::uint64_t next_ = 0;
  };
};

}  // namespace ps::kit
