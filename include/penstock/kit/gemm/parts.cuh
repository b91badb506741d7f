// The exchangeable parts of the matrix-product kernel (gemm/kernel.cuh) and their contracts:
//
//   order     which tiles a block computes, and when       GridOrder, TableOrder
//   loader    how operands reach shared memory             TensorLoader, RowLoader
//   schedule  how consumers share the work of a tile       Cooperative, Tall, PingPong, Split
//   epilogue  what happens to the sums                     GemmStore
//
// A block has one loader warpgroup and Config::consumers consumer warpgroups. Loader and consumers
// are the two ends of a ring of slots; a slot holds the tiles of A and B of one step along K. The
// kernel may start before the previous one in the stream has ended: init() and
// prefetch_arguments() run before wait_for_previous() and access no global memory but the tensor
// maps; all other members run after it.
#pragma once

#include <concepts>
#include <type_traits>

#include "penstock/kit/gemm/config.cuh"
#include "penstock/kit/gemm/exchange.cuh"
#include "penstock/kit/gemm/trace.cuh"

namespace ps::kit {

// A tile of the output, in elements. Grouped products have one B per group, for example one per
// expert; an ordinary product has group 0 alone.
struct GemmTile {
  unsigned group = 0;
  unsigned row = 0;     // the first row
  unsigned rows = 0;    // rows to compute, 1 to tile_m
  unsigned column = 0;  // the first column
};

// This block's rank in its cluster.
template <class Config>
__device__ inline unsigned gemm_rank() {
  if constexpr (Config::cluster_blocks == 1) return 0;
  return cluster_rank();
}

// The first of the `steps` steps along K that the block of this rank takes.
template <class Config>
__device__ inline unsigned gemm_first_step(unsigned rank, unsigned steps) {
  return Config::split == 1 ? 0 : rank * steps;
}

// An order is an argument of the kernel. All threads of the loader and of the consumers that take
// tiles have an Order::Tiles and see the same tiles. Blocks of a cluster need the same number of
// tiles, and at each turn the same group and column; if they share the steps of a tile, the same
// tile.
//
//   Order::Shared                     what the order needs in shared memory
//   Order::takes_clusters             whether it serves blocks of a cluster
//   order.init(shared, readers)       called by one thread before the block synchronises; `readers`
//                                     threads will have Tiles
//   Order::Tiles<warps>(order, shared, leads)  `leads` is true in one thread of the loader. If
//                                     `warps`, all 32 threads of a warp have one and call it
//                                     together, and the tile is uniform in the warp
//   tiles.take(tile)                  the next tile; false if there is none. Every reader calls it
//                                     until it returns false, and then not again
//   tiles.look_ahead(step, steps)     called by the loader's threads before each step of a tile, in
//                                     order, to prepare the next call of take()
//
// Loaders of one thread have Tiles<false>, all others Tiles<true>.
template <class Tiles, class Order>
concept GemmTiles = std::constructible_from<Tiles, const Order&, typename Order::Shared&, bool> &&
                    requires(Tiles& tiles, GemmTile& tile) {
                      { tiles.take(tile) } -> std::same_as<bool>;
                      tiles.look_ahead(0u, 1u);
                    };

template <class Order>
concept GemmOrder =
    std::is_trivially_copyable_v<Order> && GemmTiles<typename Order::template Tiles<true>, Order> &&
    GemmTiles<typename Order::template Tiles<false>, Order> &&
    requires(const Order& order, typename Order::Shared& shared) {
      order.init(shared, 0u);
      { Order::takes_clusters } -> std::convertible_to<bool>;
    };

// Where a loader and its consumers meet.
template <class Config>
struct GemmSlots : GemmIssued<Config::traced, Config::depth>,
                   GemmRecords<Config::traced, 1 + 2 * Config::consumers>,
                   GemmExchanged<Config, (Config::split > 1)> {
  alignas(1024) unsigned char a[Config::depth][Config::TileA::bytes];
  alignas(1024) unsigned char b[Config::depth][Config::TileB::bytes];
  typename Config::TileRing ring;
};

// A loader fills the slots, `steps` per tile, in order: slots.a[i] as Config::TileA and slots.b[i]
// as Config::TileB. The first step is gemm_first_step(). Columns behind the last of K are zero in
// both. Of A the rows of the tile are needed, rounded up to 64; rows of A behind tile.rows and rows
// of B behind the last may hold anything. Data that ordinary stores wrote needs
// fence_shared_to_async() before the slot is committed.
//
//   Loader::Arguments          argument of the kernel, a __grid_constant__
//   Loader::prefetch_arguments(arguments)   called once per block
//   Loader::threads            1: one elected thread of the first warp; or 128: the whole warpgroup
//   Loader::commits            arrivals per slot on the ring's `full` barriers
//   Loader::registers          registers that each of its threads needs, a multiple of 8
//   Loader(slots, arguments)   in each of these threads
//   loader.load(tile, steps, before)   calls before(step) for each step and issues its loads;
//                              returns when all loads of the tile have been issued. In a traced
//                              kernel it sets slots.issued[i] to the time when a slot's load is
//                              issued; 128 threads use a GemmProducer, which records when loads
//                              complete
//   loader.drain()             called after the last tile; returns when no other block will arrive
//                              at this block's barriers and none of the thread's cp.async is in
//                              flight
template <class Loader, class Config>
concept GemmLoading =
    std::constructible_from<Loader, GemmSlots<Config>&, const typename Loader::Arguments&> &&
    requires(Loader& loader, const typename Loader::Arguments& arguments, const GemmTile& tile,
             void (*before)(unsigned)) {
      Loader::prefetch_arguments(arguments);
      { Loader::threads + Loader::commits + Loader::registers } -> std::convertible_to<unsigned>;
      loader.load(tile, 0u, before);
      loader.drain();
    };

// An epilogue belongs to one consumer warpgroup, all of whose threads have one.
//
//   Epilogue::Arguments, Epilogue::prefetch_arguments(arguments)   as those of a loader
//   Epilogue::Shared                     what each consumer needs in shared memory
//   Epilogue(shared, arguments)
//   epilogue.store(d, tile, row, column)   takes 64 rows and 2 * count columns of sums, beginning at
//                                        (row, column) of the tile; d[i] is at accumulator_row(i),
//                                        accumulator_column(i). The schedule determines `count`
//                                        (GemmStoring): tile_n / 2, with Tall also tile_n / 4.
//                                        Called by all threads; with Split by those warps whose
//                                        rows the block stores. A column is a row of B. Rows from
//                                        tile.rows on and columns behind the last row of B hold
//                                        unspecified values and must not be stored; `row` itself
//                                        may lie behind tile.rows
//   epilogue.finish()                    called after the last tile; returns when nothing reads the
//                                        block's shared memory any more
template <class Epilogue>
concept GemmEpilogue = std::constructible_from<Epilogue, typename Epilogue::Shared&,
                                               const typename Epilogue::Arguments&> &&
                       requires(Epilogue& epilogue, const typename Epilogue::Arguments& arguments) {
                         Epilogue::prefetch_arguments(arguments);
                         epilogue.finish();
                       };

// That an epilogue stores `count` sums per thread.
template <class Epilogue, unsigned count>
concept GemmStoring = requires(Epilogue& epilogue, const GemmTile& tile, const float (&d)[count]) {
  epilogue.store(d, tile, 0u, 0u);
};

// A schedule belongs to one consumer warpgroup, all of whose threads have one.
//
//   Schedule::releases                  arrivals per slot on the ring's `empty` barriers, from the
//                                       consumers of one block
//   Schedule(slots, number)             for consumer `number`
//   schedule.run(tile, steps, epilogue, trace)   called for every tile of the block; multiplies its
//                                       part of the tile, which may be none or all, and passes the
//                                       sums to the epilogue, of which it requires GemmStoring for
//                                       each count of sums that it passes. All consumers together
//                                       wait for and release `steps` slots; with clusters they
//                                       arrive at all blocks. It reports to `trace` (GemmTrace) by
//                                       calling wait(), all_but() and stores(), as GemmConsumer does
//   schedule.finish()                   called after the last tile
template <class Schedule, class Config, class Epilogue>
concept GemmSchedule = std::constructible_from<Schedule, GemmSlots<Config>&, unsigned> &&
                       requires(Schedule& schedule, const GemmTile& tile, Epilogue& epilogue,
                                GemmTrace<Config::traced>& trace) {
                         { Schedule::releases } -> std::convertible_to<unsigned>;
                         schedule.run(tile, 0u, epilogue, trace);
                         schedule.finish();
                       };

}  // namespace ps::kit
