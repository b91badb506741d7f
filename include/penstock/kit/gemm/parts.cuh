// The exchangeable parts of the matrix-product kernel (gemm/kernel.cuh) and their contracts:
//
//   order     which tiles a block computes, and when       GridOrder, TableOrder
//   loader    how operands reach shared memory             TensorLoader
//   schedule  how consumers share the work of a tile       Cooperative, Tall
//   epilogue  what happens to the sums                     GemmStore
//
// A block has one loader warpgroup and Config::consumers consumer warpgroups. Loader and consumers
// are the two ends of a ring of slots; a slot holds the tiles of A and B of one step along K.
#pragma once

#include <concepts>
#include <type_traits>

#include "penstock/kit/gemm/config.cuh"
#include "penstock/kit/gemm/trace.cuh"

namespace ps::kit {

// A tile of the output, in elements. Grouped products have one B per group, for example one per
// expert; an ordinary product has group 0 alone.
struct GemmTile {
  unsigned group = 0;
  unsigned row = 0;     // the first row
  unsigned rows = 0;    // rows to compute, at least 1; may be fewer than the configuration's tile
  unsigned column = 0;  // the first column
};

// An order is an argument of the kernel. All threads of the loader and of the consumers that take
// tiles have an Order::Tiles and see the same tiles.
//
//   Order::Shared                     what the order needs in shared memory
//   order.init(shared, readers)       called by one thread before the block synchronises; `readers`
//                                     threads will have Tiles
//   Order::Tiles(order, shared, leads)  `leads` is true in one thread of the loader
//   tiles.take(tile)                  the next tile; false if there is none, and then not called
//                                     again
template <class Order>
concept GemmOrder =
    std::is_trivially_copyable_v<Order> &&
    std::constructible_from<typename Order::Tiles, const Order&, typename Order::Shared&, bool> &&
    requires(const Order& order, typename Order::Shared& shared, typename Order::Tiles& tiles,
             GemmTile& tile) {
      order.init(shared, 0u);
      { tiles.take(tile) } -> std::same_as<bool>;
    };

// Where a loader and its consumers meet.
template <class Config>
struct GemmSlots : GemmIssued<Config::traced, Config::depth> {
  alignas(1024) unsigned char a[Config::depth][Config::TileA::bytes];
  alignas(1024) unsigned char b[Config::depth][Config::TileB::bytes];
  typename Config::TileRing ring;
};

// A loader fills the slots, `steps` per tile, in order.
//
//   Loader::Arguments          argument of the kernel, a __grid_constant__
//   Loader::prefetch_arguments(arguments)   called once per block, before earlier kernels have ended
//   Loader::threads            1, or 128: the first threads of the loader warpgroup
//   Loader::commits            arrivals per slot on the ring's `full` barriers
//   Loader::registers          registers that each of its threads needs, a multiple of 8
//   Loader(slots, arguments)   in each of these threads
//   loader.load(tile, steps)   returns when all loads of the tile have been issued
//   loader.drain()             called after the last tile; returns when nothing arrives any more at
//                              this block's barriers
template <class Loader>
concept GemmLoading =
    requires(Loader& loader, const typename Loader::Arguments& arguments, const GemmTile& tile) {
      Loader::prefetch_arguments(arguments);
      { Loader::threads + Loader::commits + Loader::registers } -> std::convertible_to<unsigned>;
      loader.load(tile, 0u);
      loader.drain();
    };

// An epilogue belongs to one consumer warpgroup, all of whose threads have one.
//
//   Epilogue::Arguments, Epilogue::prefetch_arguments(arguments)   as those of a loader
//   Epilogue::Shared                     what each consumer needs in shared memory
//   Epilogue(shared, arguments)
//   epilogue.store(d, tile, row, column)   takes 64 rows and 2 * count columns of sums, beginning at
//                                        (row, column) of the tile; d[i] is at accumulator_row(i),
//                                        accumulator_column(i). Rows from tile.rows on hold
//                                        unspecified values
//   epilogue.finish()                    called after the last tile
template <class Epilogue>
concept GemmEpilogue = std::constructible_from<Epilogue, typename Epilogue::Shared&,
                                               const typename Epilogue::Arguments&> &&
                       requires(Epilogue& epilogue, const typename Epilogue::Arguments& arguments,
                                const GemmTile& tile, const float (&d)[64]) {
                         Epilogue::prefetch_arguments(arguments);
                         epilogue.store(d, tile, 0u, 0u);
                         epilogue.finish();
                       };

// A schedule belongs to one consumer warpgroup, all of whose threads have one.
//
//   Schedule::releases                  arrivals per slot on the ring's `empty` barriers, from the
//                                       consumers of one block
//   Schedule(slots, number)             for consumer `number`
//   schedule.run(tile, steps, epilogue, trace)   called for every tile of the block; multiplies its
//                                       part of the tile, which may be none or all, and passes the
//                                       sums to the epilogue
//   schedule.finish()                   called after the last tile
template <class Schedule, class Epilogue, class Trace>
concept GemmSchedule =
    requires(Schedule& schedule, const GemmTile& tile, Epilogue& epilogue, Trace& trace) {
      { Schedule::releases } -> std::convertible_to<unsigned>;
      schedule.run(tile, 0u, epilogue, trace);
      schedule.finish();
    };

}  // namespace ps::kit
