// The matrix-product kernel: persistent blocks with one loader and one or more consumers.
#pragma once

#include "penstock/kit/fence.cuh"
#include "penstock/kit/gemm/config.cuh"
#include "penstock/kit/gemm/epilogue.cuh"
#include "penstock/kit/gemm/loader.cuh"
#include "penstock/kit/gemm/order.cuh"
#include "penstock/kit/gemm/parts.cuh"
#include "penstock/kit/gemm/schedule.cuh"
#include "penstock/kit/launch.cuh"
#include "penstock/kit/roles.cuh"

namespace ps::kit {

// A kernel's parts; gemm/parts.cuh has their contracts.
template <class Config_, class Epilogue_ = GemmStore<Config_>,
          class Loader_ = TensorLoader<Config_>, class Order_ = GridOrder<Config_>,
          class Schedule_ = Cooperative<Config_>>
  requires GemmEpilogue<Epilogue_> && GemmLoading<Loader_, Config_> && GemmOrder<Order_> &&
           GemmSchedule<Schedule_, Config_, Epilogue_>
struct Gemm {
  using Config = Config_;
  using Epilogue = Epilogue_;
  using Loader = Loader_;
  using Order = Order_;
  using Schedule = Schedule_;

  // The kernel's dynamic shared memory, aligned to 1024 bytes.
  struct Shared {
    GemmSlots<Config> slots;
    typename Epilogue::Shared out[Config::consumers];
    typename Order::Shared tiles;
  };
  static_assert(Loader::threads == 1 || Loader::threads == warpgroup_threads);
  static_assert(Config::cluster_blocks == 1 || Order::takes_clusters,
                "the order gives blocks their own tiles");
  static_assert(sizeof(Shared) <= 227 * 1024, "a block has 227 KiB of shared memory");

  // Registers per thread: as launched, and after the loader has given some to the consumers.
  static constexpr unsigned launch_registers =
      Config::consumers == 1 ? 248 : 65536 / Config::threads / 8 * 8;
  static constexpr unsigned loader_registers = Loader::registers;
  static constexpr unsigned shared_out =
      ((1 + Config::consumers) * launch_registers - loader_registers) / Config::consumers / 8 * 8;
  static constexpr unsigned consumer_registers = shared_out < 248 ? shared_out : 248;

  // A loader that leaves threads of its warpgroup idle; in a traced kernel one of them watches the
  // loads. Others watch their loads themselves (GemmProducer).
  static constexpr bool has_watcher = Config::traced && Loader::threads == 1;

  // Threads that take tiles.
  static constexpr unsigned readers =
      Loader::threads + Config::consumers * warpgroup_threads + (has_watcher ? 1 : 0);
};

// `steps` is the number of K tiles that each block takes, at least 1. See launch_gemm() in
// gemm/launch.cuh.
template <class Gemm>
__global__ void __launch_bounds__(Gemm::Config::threads, 1)
    gemm_kernel(const __grid_constant__ typename Gemm::Loader::Arguments operands,
                const __grid_constant__ typename Gemm::Epilogue::Arguments out,
                const __grid_constant__ typename Gemm::Order order, unsigned steps,
                const TraceBuffer<Gemm::Config::traced> buffer) {
  using Config = typename Gemm::Config;
  using Loader = typename Gemm::Loader;
  using Order = typename Gemm::Order;

  // Shared storage
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<typename Gemm::Shared*>(memory);

  // Setup
  const unsigned group = warpgroup_index();
  if (threadIdx.x == warp_threads) {  // not the warp that initialises the ring
    Loader::prefetch_arguments(operands);
    Gemm::Epilogue::prefetch_arguments(out);
  }
  if (threadIdx.x == 0) {
    shared.slots.ring.init(Loader::commits,
                           Gemm::Schedule::releases * Config::cluster + (Config::traced ? 1 : 0));
    shared.slots.init_exchange();
    order.init(shared.tiles, Gemm::readers);
    fence_barrier_init();
  }
  if constexpr (Config::cluster_blocks == 1) {
    __syncthreads();
  } else {
    cluster_arrive_relaxed();  // blocks also arrive at each other's barriers
    cluster_wait();
  }
  wait_for_previous();
  let_next_start();

  // Roles
  GemmTile tile;
  Trace<Config::traced> trace(buffer);
  if (group == 0) {
    give_registers<Gemm::loader_registers>();
    constexpr bool warps = Loader::threads > 1;
    const bool loads = warps || (warp_index() == 0 && elect());
    const bool watches = warps && threadIdx.x == 0;
    trace.begin(watches);
    if (loads) {
      SharedRoleTrace<Config::traced> landing(shared.slots.records(0), trace, 0, watches);
      Loader loader(shared.slots, operands);
      typename Order::template Tiles<warps> tiles(order, shared.tiles, !warps || threadIdx.x == 0);
      while (tiles.take(tile)) {
        loader.load(tile, steps, [&](unsigned step) { tiles.look_ahead(step, steps); });
      }
      loader.drain();
    }
    trace.end(watches);
    if constexpr (Gemm::has_watcher) {  // records when loads complete, while the loader goes on
      if (warp_index() == 1 && elect()) {
        trace.begin(true);
        Consumer<Barrier, Config::depth> landed(shared.slots.ring);
        auto landing = trace.role(0, true);
        typename Order::template Tiles<false> tiles(order, shared.tiles, false);
        for (unsigned first = 0; tiles.take(tile); first += steps) {
          watch_loads(landed, landing, shared.slots.issued, first, steps);
        }
        trace.end(true);
      }
    }
  } else {
    take_registers<Gemm::consumer_registers>();
    const unsigned number = group - 1;
    typename Gemm::Schedule schedule(shared.slots, number);
    typename Gemm::Epilogue epilogue(shared.out[number], out);
    typename Order::template Tiles<true> tiles(order, shared.tiles, false);
    const bool writes = threadIdx.x % warpgroup_threads == 0;
    const auto recorded = [&](unsigned role) {
      return SharedRoleTrace<Config::traced>(shared.slots.records(role), trace, role, writes);
    };
    auto products = recorded(gemm_products_role(number));
    auto stores = recorded(gemm_stores_role(number));
    GemmTrace<Config::traced> work(products, stores);
    while (tiles.take(tile)) schedule.run(tile, steps, epilogue, work);
    schedule.finish();
    epilogue.finish();
  }
}

}  // namespace ps::kit
