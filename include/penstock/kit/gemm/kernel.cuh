// The matrix-product kernel: persistent blocks with one loader and one or more consumers, and a
// tile order that keeps operands in the L2 cache.
#pragma once

#include "penstock/kit/fence.cuh"
#include "penstock/kit/gemm/config.cuh"
#include "penstock/kit/gemm/epilogue.cuh"
#include "penstock/kit/gemm/mainloop.cuh"
#include "penstock/kit/roles.cuh"
#include "penstock/kit/scheduler.h"

namespace ps::kit {

// `steps` is the number of K tiles. Epilogue has the constructor and the members of GemmStore:
// Arguments, prefetch_arguments(), store() and finish(). See launch_gemm() in gemm/launch.cuh.
template <class Config, class Epilogue, class Order>
__global__ void __launch_bounds__(Config::threads, 1)
    gemm_kernel(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b,
                const __grid_constant__ typename Epilogue::Arguments out, const Order order,
                unsigned steps, const TraceBuffer<Config::traced> buffer) {
  // Shared storage
  static_assert(sizeof(GemmShared<Config>) <= 227 * 1024, "a block has 227 KiB of shared memory");
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<GemmShared<Config>*>(memory);

  // Setup
  const unsigned group = warpgroup_index();
  if (threadIdx.x == warp_threads) {  // not the warp that initialises the ring
    prefetch(a);
    prefetch(b);
    Epilogue::prefetch_arguments(out);
  }
  if (threadIdx.x == 0) {
    shared.ring.init(1, Config::consumers * Config::cluster + (Config::traced ? 1 : 0));
    fence_barrier_init();
  }
  if constexpr (Config::cluster == 1) {
    __syncthreads();
  } else {
    cluster_arrive_relaxed();  // blocks also arrive at each other's barriers
    cluster_wait();
  }

  // Roles
  PersistentTiles<Order> tiles(order, blockIdx.x, gridDim.x);
  Tile tile;
  Trace<Config::traced> trace(buffer);
  if (group == 0) {
    give_registers<Config::loader_registers>();
    if (warp_index() == 0 && elect()) {
      GemmLoader<Config> loader(shared, a, b);
      while (tiles.take(tile)) {
        loader.load(tile.row * Config::tile_m, tile.column * Config::tile_n, steps);
      }
      // A block must not end while others of its cluster arrive at its barriers.
      if constexpr (Config::cluster > 1) loader.drain();
    }
    if constexpr (Config::traced) {  // records when loads complete, while the loader goes on
      if (warp_index() == 1 && elect()) {
        trace.begin(true);
        Consumer<Barrier, Config::depth> landed(shared.ring);
        auto loads = trace.role(0, true);
        for (unsigned first = 0; tiles.take(tile); first += steps) {
          watch_loads(landed, loads, shared.issued, first, steps);
        }
        trace.end(true);
      }
    }
  } else {
    take_registers<Config::consumer_registers>();
    const unsigned number = group - 1;
    GemmConsumer<Config> consumer(shared, number);
    Epilogue epilogue(shared, out, number);
    const bool writes = threadIdx.x % warpgroup_threads == 0;
    auto products = trace.role(gemm_products_role(number), writes);
    auto stores = trace.role(gemm_stores_role(number), writes);
    GemmSteps<Config::traced> seen(products);
    while (tiles.take(tile)) {
      float d[Config::tile_n / 2];
      consumer.multiply(d, steps, seen);
      const auto start = stores.now();
      epilogue.store(d, tile.row * Config::tile_m + 64 * number, tile.column * Config::tile_n);
      stores.record(seen.last(), start);
    }
    epilogue.finish();
  }
}

}  // namespace ps::kit
