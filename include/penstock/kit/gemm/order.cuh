// Orders in which blocks take the tiles of a matrix product.
#pragma once

#include <cstdint>

#include "penstock/kit/barrier.cuh"
#include "penstock/kit/gemm/parts.cuh"
#include "penstock/kit/scheduler.h"

namespace ps::kit {

// The tiles of one m x n matrix, in panels of `group` tile rows that keep operands in the L2 cache.
// Block b takes tiles b, b + blocks, ... A tile that would end outside the matrix is moved back to
// its edge, because tensor copies take far longer for rows outside than for rows inside. Elements
// that two tiles have in common are computed and stored twice, with the same bits.
template <class Config>
class GridOrder {
 public:
  static constexpr bool takes_clusters = true;
  struct Shared {};

  GridOrder(std::int64_t m, std::int64_t n, unsigned group)
      : grid_(count(m, Config::tile_m), count(n, Config::tile_n), group, Config::cluster),
        m_(static_cast<unsigned>(m)),
        last_row_(last(m, Config::tile_m)),
        last_column_(last(n, Config::tile_n)) {}

  const GroupedOrder& grid() const { return grid_; }

  __device__ void init(Shared&, unsigned) const {}

  template <bool warps>
  class Tiles {
   public:
    __device__ Tiles(const GridOrder& order, Shared&, bool)
        : tiles_(order.grid_, blockIdx.x / Config::split, gridDim.x / Config::split),
          order_(order) {}

    __device__ bool take(GemmTile& tile) {
      Tile place;
      if (!tiles_.take(place)) return false;
      // Blocks of a cluster may get tiles below the matrix: they repeat the last one.
      const unsigned row = min(place.row * Config::tile_m, order_.last_row_);
      const unsigned column = min(place.column * Config::tile_n, order_.last_column_);
      tile = {0, row, min(order_.m_ - row, Config::tile_m), column};
      return true;
    }

    __device__ void look_ahead(unsigned, unsigned) {}

   private:
    PersistentTiles<GroupedOrder> tiles_;
    const GridOrder& order_;
  };

 private:
  static std::uint64_t count(std::int64_t extent, std::int64_t tile) {
    return static_cast<std::uint64_t>((extent + tile - 1) / tile);
  }
  static unsigned last(std::int64_t extent, std::int64_t tile) {
    return extent > tile ? static_cast<unsigned>(extent - tile) : 0;
  }

  GroupedOrder grid_;
  unsigned m_;
  unsigned last_row_, last_column_;  // where the last tiles begin
};

// Tiles from a table in global memory, one 64-bit word each, handed to whichever block is free:
// tiles may need different times. Codec::tile(word) gives the GemmTile; no word is 0. `taken` must
// be 0 when the kernel starts. The results must not depend on which block computes a tile.
//
// One thread of the loader takes numbers and passes words to the others through shared memory. It
// takes the next number shortly before the loads of a tile end: early enough to wait neither for
// the counter nor for the table, and late enough that neighbours in the table, which share operands
// in the L2 cache, start at nearly the same time.
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
      count_ = *order.count;
      next_ = word(blockIdx.x);
    }

    __device__ bool take(GemmTile& tile) {
      if (leads_) {
        shared_.words[writer_.acquire()] = next_;
        writer_.commit();
      }
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
      tile = Codec::tile(now);
      return true;
    }

    // Nothing here uses what it loads: a later call does.
    __device__ void look_ahead(unsigned step, unsigned steps) {
      if (!leads_) return;
      if (step + number_ahead == steps || (step == 0 && steps < number_ahead)) {
        taken_ = atomicAdd(order_.taken, 1);
      }
      if (step + word_ahead == steps || (step == 0 && steps < word_ahead)) {
        next_ = word(gridDim.x + taken_);
      }
    }

   private:
    // Steps before the end of a tile at which its successor's number and word are loaded: a step
    // takes about as long as either.
    static constexpr unsigned number_ahead = 6, word_ahead = 3;

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
