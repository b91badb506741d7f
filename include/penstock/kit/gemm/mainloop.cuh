// The loader and the consumers of a matrix product: the producer and the consumers of its ring of A
// and B tiles.
#pragma once

#include "penstock/kit/cluster.cuh"
#include "penstock/kit/gemm/config.cuh"
#include "penstock/kit/ring.h"
#include "penstock/kit/tma.cuh"
#include "penstock/kit/wgmma.cuh"

namespace ps::kit {

// Used by one thread of the block.
template <class Config>
class GemmLoader {
 public:
  __device__ GemmLoader(GemmShared<Config>& shared, const TensorMap& a, const TensorMap& b)
      : shared_(shared), a_(a), b_(b), producer_(shared.ring), rank_(rank()) {}

  // Loads the operands of the tile whose first element is (row, column).
  __device__ void load(unsigned row, unsigned column, unsigned steps) {
    for (unsigned step = 0; step < steps; ++step) {
      const unsigned slot = producer_.acquire(Config::slot_bytes);
      if constexpr (Config::traced) shared_.issued[slot] = SmSource::now();
      auto& full = producer_.full(slot);
      const unsigned k = step * Config::tile_k;
      tensor_load(shared_.a[slot], a_, full, evict_normal(), row, k);
      if constexpr (Config::cluster == 1) {
        tensor_load(shared_.b[slot], b_, full, evict_normal(), column, k);
      } else {
        // Each block loads its part of B and multicasts it to all, which divides the L2 traffic.
        const unsigned first = rank_ * Config::shared_rows;
        tensor_load_multicast(shared_.b[slot] + Config::TileB::row_offset(first), b_, full,
                              (1u << Config::cluster) - 1, evict_normal(), column + first, k);
      }
    }
  }

  // Waits until all slots have been released, by all blocks of the cluster.
  __device__ void drain() { producer_.drain(); }

 private:
  __device__ static unsigned rank() {
    if constexpr (Config::cluster == 1) return 0;
    return cluster_rank();
  }

  GemmShared<Config>& shared_;
  const TensorMap& a_;
  const TensorMap& b_;
  Producer<Barrier, Config::depth> producer_;
  unsigned rank_;
};

// Consumer warpgroup `number`, which multiplies 64 rows of a tile.
template <class Config>
class GemmConsumer {
 public:
  using Accumulators = float[Config::tile_n / 2];

  __device__ GemmConsumer(GemmShared<Config>& shared, unsigned number)
      : consumer_(shared.ring),
        a_(Operand<TileA>::at(shared_address(shared.a)).from_row(64 * number)),
        b_(Operand<TileB>::at(shared_address(shared.b))) {}

  // d = the sum of the products of `steps` slots. With 0 steps d is unchanged.
  __device__ void multiply(Accumulators& d, unsigned steps) {
    GemmSteps<false> untraced;
    multiply(d, steps, untraced);
  }
  template <bool traced>
  __device__ void multiply(Accumulators& d, unsigned steps, GemmSteps<traced>& trace) {
    for (unsigned step = 0; step < steps; ++step) {
      const unsigned slot = trace.wait(consumer_);
      const Operand<TileA> a{a_.bits + slot * (TileA::bytes >> 4)};
      const Operand<TileB> b{b_.bits + slot * (TileB::bytes >> 4)};
      wgmma_fence();
#pragma unroll
      for (unsigned k = 0; k < TileA::slices; ++k) {
        kit::multiply(d, a.slice(k), b.slice(k), step > 0 || k > 0);
      }
      wgmma_commit();
      // Release the previous slot while the tensor cores work on this one.
      if (step > 0) {
        wgmma_wait<1>();
        trace.all_but(1);
        release();
      }
    }
    if (steps > 0) {
      wgmma_wait<0>(d);
      trace.all_but(0);
      release();
    }
  }

 private:
  using TileA = typename Config::TileA;
  using TileB = typename Config::TileB;

  // Arrives at every block that wrote into this block's slot: thread i at block i.
  __device__ void release() {
    const unsigned thread = threadIdx.x % warpgroup_threads;
    if constexpr (Config::cluster == 1) {
      if (thread == 0) consumer_.empty(consumer_.oldest()).arrive();
    } else {
      if (thread < Config::cluster) consumer_.empty(consumer_.oldest()).arrive_in(thread);
    }
    consumer_.skip_release();
  }

  Consumer<Barrier, Config::depth> consumer_;
  Operand<TileA> a_;
  Operand<TileB> b_;
};

}  // namespace ps::kit
