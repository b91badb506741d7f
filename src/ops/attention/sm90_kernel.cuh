// Attention on Hopper: persistent blocks with one loader and two or three consumers.
#pragma once

#include "ops/attention/sm90_config.cuh"
#include "ops/attention/sm90_consumer.cuh"
#include "ops/attention/sm90_loader.cuh"
#include "penstock/kit/fence.cuh"
#include "penstock/kit/launch.cuh"
#include "penstock/kit/roles.cuh"

namespace ps::detail {

// Launch it with no more blocks than there are tiles in a grid; those of a table may find no tile.
template <class Config>
__global__ void __launch_bounds__(Config::threads, 1)
    attention_kernel(const __grid_constant__ AttentionArguments arguments) {
  using Shared = AttentionShared<Config>;
  static_assert(sizeof(Shared) <= 227 * 1024, "a block has 227 KiB of shared memory");

  // Shared storage
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<Shared*>(memory);

  // Setup
  if (threadIdx.x == kit::warp_threads) {  // not the warp that initialises the rings
    kit::prefetch(arguments.q);
    kit::prefetch(arguments.k);
    kit::prefetch(arguments.v);
    kit::prefetch(arguments.out);
  }
  if (threadIdx.x == 0) {
    constexpr unsigned warps = Config::consumers * kit::warpgroup_threads / kit::warp_threads;
    shared.q_ring.init(1, warps);
    shared.k_ring.init(1, Config::consumers);
    shared.v_ring.init(1, Config::consumers);
    if (Config::general) shared.patch_ring.init(1, 1);
    kit::fence_barrier_init();
  }
  __syncthreads();
  kit::wait_for_previous();
  kit::let_next_start();

  // Roles
  const unsigned group = kit::warpgroup_index();
  if (group == 0) {
    kit::give_registers<Config::loader_registers>();
    if (kit::warp_index() == 0) {
      if (kit::elect()) AttentionLoader<Config>(shared, arguments).run();
    } else if (Config::general && kit::warp_index() == 1) {
      patch_values<Config>(shared);
    }
  } else {
    kit::take_registers<Config::consumer_registers>();
    // Blocks of keys in pages do not end where the tile does.
    if (Config::halves && group == 1 && arguments.reach.right == 0 &&
        (!Config::general || arguments.pages.table == nullptr)) {
      AttentionConsumer<Config, Config::halves>(shared, arguments, group - 1).run();
    } else {
      AttentionConsumer<Config, false>(shared, arguments, group - 1).run();
    }
  }
}

}  // namespace ps::detail
