// The loader of an ordinary matrix product: both operands by tensor copies.
#pragma once

#include "penstock/kit/cluster.cuh"
#include "penstock/kit/gemm/parts.cuh"
#include "penstock/kit/tma.cuh"

namespace ps::kit {

// Used by one thread of the block.
template <class Config>
class TensorLoader {
 public:
  struct Arguments {
    TensorMap a;     // boxes of tile_m x 64, or of fewer rows if A has no more
    TensorMap b;     // boxes of shared_rows x 64; without a cluster, likewise
    unsigned bytes;  // of both boxes, and with a cluster of all boxes of B
  };
  static constexpr unsigned threads = 1;
  static constexpr unsigned commits = 1;
  static constexpr unsigned registers = Config::consumers == 2 ? 40 : 32;
  static_assert(Config::TileB::major == Major::k, "loads K-major operands only");

  __device__ static void prefetch_arguments(const Arguments& maps) {
    prefetch(maps.a);
    prefetch(maps.b);
  }

  __device__ TensorLoader(GemmSlots<Config>& slots, const Arguments& maps)
      : slots_(slots), maps_(maps), producer_(slots.ring), rank_(gemm_rank<Config>()) {}

  template <class Before>
  __device__ void load(const GemmTile& tile, unsigned steps, const Before& before) {
    for (unsigned step = 0; step < steps; ++step) {
      before(step);
      const unsigned slot = producer_.acquire(maps_.bytes);
      if constexpr (Config::traced) slots_.issued[slot] = SmSource::now();
      auto& full = producer_.full(slot);
      const unsigned k = (gemm_first_step<Config>(rank_, steps) + step) * Config::tile_k;
      tensor_load(slots_.a[slot], maps_.a, full, evict_normal(), tile.row, k);
      if constexpr (Config::cluster == 1) {
        tensor_load(slots_.b[slot], maps_.b, full, evict_normal(), tile.column, k);
      } else {
        // Each block loads its part of B and multicasts it to all, which divides the L2 traffic.
        const unsigned first = rank_ * Config::shared_rows;
        tensor_load_multicast(slots_.b[slot] + Config::TileB::row_offset(first), maps_.b, full,
                              (1u << Config::cluster) - 1, evict_normal(), tile.column + first, k);
      }
    }
  }

  // A block must not end while others of its cluster arrive at its barriers.
  __device__ void drain() {
    if constexpr (Config::cluster > 1) producer_.drain();
  }

 private:
  GemmSlots<Config>& slots_;
  const Arguments& maps_;
  Producer<Barrier, Config::depth> producer_;
  unsigned rank_;  // in the cluster
};

}  // namespace ps::kit
