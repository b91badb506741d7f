// How the consumers of a matrix product share its tiles, or the work of one tile.
#pragma once

#include "penstock/kit/cluster.cuh"
#include "penstock/kit/fence.cuh"
#include "penstock/kit/gemm/parts.cuh"
#include "penstock/kit/wgmma.cuh"

namespace ps::kit {

// One consumer's end of the ring: waits for slots and passes their operands on.
template <class Config>
class GemmConsumer {
 public:
  using TileA = typename Config::TileA;
  using TileB = typename Config::TileB;

  __device__ explicit GemmConsumer(GemmSlots<Config>& slots)
      : consumer_(slots.ring),
        a_(Operand<TileA>::at(shared_address(slots.a))),
        b_(Operand<TileB>::at(shared_address(slots.b))) {}

  // Calls issue(a, b, add) for each of `steps` slots, at least one; it starts the products of the
  // slot, which replace the sums if `add` is false for its first instruction. All products are in
  // flight or done when this returns: call wgmma_wait<0>(d) for each array of sums, then done().
  template <class Issue, class Trace>
  __device__ void multiply(unsigned steps, Trace& trace, const Issue& issue) {
    for (unsigned step = 0; step < steps; ++step) {
      const unsigned slot = trace.wait(consumer_);
      const Operand<TileA> a{a_.bits + slot * (TileA::bytes >> 4)};
      const Operand<TileB> b{b_.bits + slot * (TileB::bytes >> 4)};
      wgmma_fence();
      issue(a, b, step > 0);
      wgmma_commit();
      if constexpr (Config::depth == 1) {  // nothing overlaps: the next load waits for this slot
        wgmma_wait<0>();
        trace.all_but(0);
        release();
      } else if (step > 0) {
        // Release the previous slot while the tensor cores work on this one.
        wgmma_wait<1>();
        trace.all_but(1);
        release();
      }
    }
  }

  // Releases the last slot, unless that has been done.
  template <class Trace>
  __device__ void done(Trace& trace) {
    if constexpr (Config::depth == 1) return;
    trace.all_but(0);
    release();
  }

  // Leaves `steps` slots to another consumer. See Consumer::skip() for when to wait again.
  template <class Trace>
  __device__ void skip(unsigned steps, Trace& trace) {
    consumer_.skip(steps);
    trace.skip(steps);
  }

 private:
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

// Starts the products of one slot: 64 rows of a from `row` on, 2 * count rows of b from `column`
// on.
template <class A, class B, unsigned count>
__device__ inline void multiply_slot(float (&d)[count], Operand<A> a, unsigned row, Operand<B> b,
                                     unsigned column, bool add) {
#pragma unroll
  for (unsigned k = 0; k < A::slices; ++k) {
    multiply(d, a.from_row(row).slice(k), b.from_row(column).slice(k), add || k > 0);
  }
}

// Each consumer has 64 rows of the tile and all its columns.
template <class Config>
class Cooperative {
 public:
  static constexpr unsigned releases = Config::consumers;
  static_assert(Config::tile_m == 64 * Config::consumers, "64 rows per consumer");

  __device__ Cooperative(GemmSlots<Config>& slots, unsigned number)
      : consumer_(slots), row_(64 * number) {}

  template <GemmStoring<Config::tile_n / 2> Epilogue, class Trace>
  __device__ void run(const GemmTile& tile, unsigned steps, Epilogue& epilogue, Trace& trace) {
    float d[Config::tile_n / 2];
    consumer_.multiply(steps, trace, [&](const auto& a, const auto& b, bool add) {
      multiply_slot(d, a, row_, b, 0, add);
    });
    wgmma_wait<0>(d);
    consumer_.done(trace);
    trace.stores([&] { epilogue.store(d, tile, row_, 0); });
  }

  __device__ void finish() {}

 private:
  GemmConsumer<Config> consumer_;
  unsigned row_;
};

// As Cooperative, for a tile whose steps are split over the blocks of a cluster: at the end each
// block adds up the sums of all of them in the rows that it owns, and stores these.
template <class Config>
class Split {
 public:
  static constexpr unsigned releases = Config::consumers;
  static_assert(Config::tile_m == 64 * Config::consumers, "64 rows per consumer");
  static_assert(Config::split > 1, "two or more blocks");

  __device__ Split(GemmSlots<Config>& slots, unsigned number)
      : consumer_(slots), exchange_(slots.inbox[number], gemm_rank<Config>()), row_(64 * number) {}

  template <GemmStoring<Config::tile_n / 2> Epilogue, class Trace>
  __device__ void run(const GemmTile& tile, unsigned steps, Epilogue& epilogue, Trace& trace) {
    float d[Config::tile_n / 2];
    consumer_.multiply(steps, trace, [&](const auto& a, const auto& b, bool add) {
      multiply_slot(d, a, row_, b, 0, add);
    });
    wgmma_wait<0>(d);
    consumer_.done(trace);
    trace.stores([&] {
      if (exchange_.add_up(d)) epilogue.store(d, tile, row_, 0);
    });
  }

  __device__ void finish() { exchange_.finish(); }

 private:
  GemmConsumer<Config> consumer_;
  GemmExchange<Config> exchange_;
  unsigned row_;
};

// Two consumers, tiles of up to 192 rows: each has 64 rows and half the columns of the third 64. A
// tall tile needs fewer bytes of B per product. Tiles of at most 128 rows leave the third part out;
// of tiles of at most 64 rows each consumer takes half the columns. So at most 63 padding rows are
// computed.
template <class Config>
class Tall {
 public:
  static constexpr unsigned releases = 2;
  static_assert(Config::tile_m == 192 && Config::consumers == 2, "192 rows, two consumers");

  __device__ Tall(GemmSlots<Config>& slots, unsigned number) : consumer_(slots), number_(number) {}

  template <GemmStoring<Config::tile_n / 2> Epilogue, class Trace>
    requires GemmStoring<Epilogue, Config::tile_n / 4>
  __device__ void run(const GemmTile& tile, unsigned steps, Epilogue& epilogue, Trace& trace) {
    if (tile.rows > 128) {
      run_tall(tile, steps, epilogue, trace);
    } else if (tile.rows > 64) {
      run_two(tile, steps, epilogue, trace);
    } else {
      run_one(tile, steps, epilogue, trace);
    }
  }

  __device__ void finish() {}

 private:
  static constexpr unsigned half = Config::tile_n / 2;

  template <class Epilogue, class Trace>
  __device__ void run_tall(const GemmTile& tile, unsigned steps, Epilogue& epilogue, Trace& trace) {
    float d[Config::tile_n / 2], third[half / 2];
    consumer_.multiply(steps, trace, [&](const auto& a, const auto& b, bool add) {
      multiply_slot(d, a, 64 * number_, b, 0, add);
      multiply_slot(third, a, 128, b, half * number_, add);
    });
    wgmma_wait<0>(d);
    wgmma_wait<0>(third);
    consumer_.done(trace);
    trace.stores([&] {
      epilogue.store(third, tile, 128, half * number_);
      epilogue.store(d, tile, 64 * number_, 0);
    });
  }

  template <class Epilogue, class Trace>
  __device__ void run_two(const GemmTile& tile, unsigned steps, Epilogue& epilogue, Trace& trace) {
    float d[Config::tile_n / 2];
    consumer_.multiply(steps, trace, [&](const auto& a, const auto& b, bool add) {
      multiply_slot(d, a, 64 * number_, b, 0, add);
    });
    wgmma_wait<0>(d);
    consumer_.done(trace);
    trace.stores([&] { epilogue.store(d, tile, 64 * number_, 0); });
  }

  template <class Epilogue, class Trace>
  __device__ void run_one(const GemmTile& tile, unsigned steps, Epilogue& epilogue, Trace& trace) {
    float d[half / 2];
    consumer_.multiply(steps, trace, [&](const auto& a, const auto& b, bool add) {
      multiply_slot(d, a, 0, b, half * number_, add);
    });
    wgmma_wait<0>(d);
    consumer_.done(trace);
    trace.stores([&] { epilogue.store(d, tile, 0, half * number_); });
  }

  GemmConsumer<Config> consumer_;
  unsigned number_;
};

// Two consumers take whole tiles alternately: one multiplies while the other stores, so that the
// tensor cores do not wait for the epilogue. Pays off if K is short. Both consumers hold the sums
// of a whole tile, so tiles are at most half as large as those of Cooperative.
//
// Uses the named barriers 1 and 2: a consumer waits at its own for its turn, and the other arrives
// there.
template <class Config>
class PingPong {
 public:
  static constexpr unsigned releases = 1;  // each slot is released by the consumer that takes it
  static_assert(Config::consumers == 2, "two consumers");
  static_assert(Config::tile_m <= 128, "one or two times 64 rows");

  __device__ PingPong(GemmSlots<Config>& slots, unsigned number)
      : consumer_(slots), number_(number), mine_(number == 0) {
    if (number == 1) pass_turn();  // the other one begins
  }

  template <GemmStoring<Config::tile_n / 2> Epilogue, class Trace>
  __device__ void run(const GemmTile& tile, unsigned steps, Epilogue& epilogue, Trace& trace) {
    if (mine_) {
      take(tile, steps, epilogue, trace);
    } else {
      consumer_.skip(steps, trace);
    }
    mine_ = !mine_;
  }

  // The turn after the last tile is taken, too, so that no arrival is left at a barrier.
  __device__ void finish() {
    if (mine_) wait_for_turn();
  }

 private:
  static constexpr unsigned parts = Config::tile_m / 64;

  template <class Epilogue, class Trace>
  __device__ void take(const GemmTile& tile, unsigned steps, Epilogue& epilogue, Trace& trace) {
    float d[parts][Config::tile_n / 2];
    wait_for_turn();
    consumer_.multiply(steps, trace, [&](const auto& a, const auto& b, bool add) {
#pragma unroll
      for (unsigned part = 0; part < parts; ++part) {
        multiply_slot(d[part], a, 64 * part, b, 0, add);
      }
    });
    // All slots of the tile have been waited for: the other consumer may wait for the next ones.
    pass_turn();
#pragma unroll
    for (unsigned part = 0; part < parts; ++part) wgmma_wait<0>(d[part]);
    consumer_.done(trace);
    trace.stores([&] {
#pragma unroll
      for (unsigned part = 0; part < parts; ++part) epilogue.store(d[part], tile, 64 * part, 0);
    });
  }

  __device__ void wait_for_turn() { named_barrier_wait(1 + number_, 2 * warpgroup_threads); }
  __device__ void pass_turn() { named_barrier_arrive(2 - number_, 2 * warpgroup_threads); }

  GemmConsumer<Config> consumer_;
  unsigned number_;
  bool mine_;  // whether the next tile is this consumer's
};

}  // namespace ps::kit
