// The down-projection of narrow experts, n <= 256, on Hopper. The products of an ordinary tile are
// then so short that its consumers mostly wait for their stores. Here a consumer keeps 64 rows of h
// in registers, as the A operand of wgmma, and walks along the columns of y with two sets of
// 64 x 128 sums: one is stored while the other is multiplied. Sums are added up along K in the same
// order as in the ordinary kernel, so they have the same bits.
#pragma once

#include <cstdint>

#include "ops/moe/narrow_items.h"
#include "ops/moe/sm90_stores.cuh"
#include "penstock/kit/fence.cuh"
#include "penstock/kit/gemm/order.cuh"
#include "penstock/kit/launch.cuh"
#include "penstock/kit/roles.cuh"
#include "penstock/kit/wgmma.cuh"

namespace ps::detail {

struct MoeNarrowCodec {
  // `column` is the number of the share, for moe_walk().
  __device__ static kit::GemmTile tile(std::uint64_t word) {
    const MoeItem item = MoeItem::unpacked(word);
    return {item.slot, item.first, item.rows, item.column};
  }
};

// Stores 64 x 128 sums that have been packed before.
template <class Element, unsigned pieces>
class MoePackedStore : public MoeRowStore<Element, pieces, true> {
  using Base = MoeRowStore<Element, pieces, true>;

 public:
  using Base::Base;
  using Packed = std::uint32_t[2][4][4];  // of 64 columns, of 16 columns, for PieceStore::put()

  __device__ static void pack(const float (&d)[64], Packed& to) {
#pragma unroll
    for (unsigned i = 0; i < 8; ++i) kit::pack_pairs<Element>(d + 8 * i, to[i / 4][i % 4]);
  }

  __device__ void store(const Packed& from, const kit::GemmTile& tile, unsigned row) {
#pragma unroll
    for (unsigned p = 0; p < 2; ++p) {
      this->put(tile, row, tile.column + 64 * p, kit::evict_first(),
                [&](unsigned i, std::uint32_t (&to)[4]) {
#pragma unroll
                  for (unsigned j = 0; j < 4; ++j) to[j] = from[p][i][j];
                });
    }
  }
};

// `steps` is the number of steps along K, of 64 columns of h each.
template <class Element_, unsigned steps_>
struct MoeNarrow {
  using Element = Element_;
  static constexpr unsigned steps = steps_;
  static constexpr unsigned depth = 11;  // slots in the ring
  static constexpr unsigned consumers = 2;
  static constexpr unsigned threads = (1 + consumers) * kit::warpgroup_threads;
  static constexpr unsigned loader_registers = 40, consumer_registers = 232;

  using Order = kit::TableOrder<MoeNarrowCodec>;
  using Store = MoePackedStore<Element, 3>;
  using Tile = kit::SharedTile<Element, 128, 64>;  // 128 rows of h, or the weights of 128 columns

  struct Arguments {
    kit::TensorMap h;     // boxes of 64 x 64
    kit::TensorMap down;  // {slots, d, n}, boxes of {1, 128, 64}
    unsigned blocks;      // moe_down_columns()
  };
  struct Shared {
    alignas(1024) unsigned char slots[depth][Tile::bytes];
    typename Store::Shared out[consumers];
    kit::Ring<kit::Barrier, depth> ring;
    typename Order::Shared tiles;
  };
  static_assert(steps * 64 <= moe_narrow_width);
  static_assert(depth >= 2 * steps,
                "consumers hold the rows' slots and those of the first columns");
  static_assert(sizeof(Shared) <= 227 * 1024, "a block has 227 KiB of shared memory");

  // Slots that an item takes: its rows, then two times 128 columns per block of the walk.
  __device__ static unsigned slots_of(const MoeWalk& walk) {
    return steps * (1 + 2 * (walk.end - walk.begin));
  }
};

// Used by one thread.
template <class Narrow>
class MoeNarrowLoader {
  using Shared = typename Narrow::Shared;
  using Tile = typename Narrow::Tile;

 public:
  __device__ MoeNarrowLoader(Shared& shared, const typename Narrow::Arguments& arguments)
      : shared_(shared), arguments_(arguments), producer_(shared.ring) {}

  // Calls before(step, steps) before each slot.
  template <class Before>
  __device__ void load(const kit::GemmTile& item, const Before& before) {
    const MoeWalk walk = moe_walk(item.column, arguments_.blocks);
    const unsigned slots = Narrow::slots_of(walk);
    for (unsigned i = 0; i < slots; ++i) {
      before(i, slots);
      const unsigned k = i % Narrow::steps * 64;
      if (i < Narrow::steps) {
        load_rows(item, k);
      } else {
        const unsigned column =
            walk.begin * unsigned{moe_item_columns} + (i / Narrow::steps - 1) * 128;
        const unsigned slot = producer_.acquire(Tile::bytes);
        kit::tensor_load(shared_.slots[slot], arguments_.down, producer_.full(slot),
                         kit::evict_normal(), item.group, column, k);
      }
    }
  }

 private:
  __device__ void load_rows(const kit::GemmTile& item, unsigned k) {
    constexpr unsigned unit_bytes = Tile::row_offset(64);
    const unsigned units = item.rows > 64 ? 2 : 1;
    const unsigned slot = producer_.acquire(units * unit_bytes);
    for (unsigned unit = 0; unit < units; ++unit) {
      kit::tensor_load(shared_.slots[slot] + unit * unit_bytes, arguments_.h, producer_.full(slot),
                       kit::evict_normal(), item.row + 64 * unit, k);
    }
  }

  Shared& shared_;
  const typename Narrow::Arguments& arguments_;
  kit::Producer<kit::Barrier, Narrow::depth> producer_;
};

// A warpgroup, which has 64 rows of each item.
template <class Narrow>
class MoeNarrowConsumer {
  using Element = typename Narrow::Element;
  using Store = typename Narrow::Store;
  using Tile = typename Narrow::Tile;
  static constexpr unsigned steps = Narrow::steps;
  using Rows = std::uint32_t[steps][Tile::slices][4];  // A operands

 public:
  __device__ MoeNarrowConsumer(typename Narrow::Shared& shared,
                               const typename Store::Arguments& out, unsigned blocks,
                               unsigned number)
      : shared_(shared),
        consumer_(shared.ring),
        store_(shared.out[number], out),
        weights_(kit::Operand<Tile>::at(kit::shared_address(shared.slots))),
        blocks_(blocks),
        number_(number),
        row_(64 * number) {}

  template <class Items>
  __device__ void run(Items& items) {
    Rows rows;
    float even[64], odd[64];
    typename Store::Packed packed;
    kit::GemmTile item, waiting{};  // `waiting`: whose sums are in `packed`; no rows: none
    while (items.take(item)) {
      const MoeWalk walk = moe_walk(item.column, blocks_);
      if (row_ >= item.rows) {
        leave(Narrow::slots_of(walk));
        continue;
      }
      load(rows);
      for (unsigned block = walk.begin; block < walk.end; ++block) {
        multiply<false>(even, rows);
        if (block == walk.begin) release_rows();
        if (waiting.rows != 0) store_.store(packed, waiting, row_);
        multiply<true>(odd, rows);
        kit::wgmma_wait<steps>(even);
        Store::pack(even, packed);
        waiting = {item.group, item.row, item.rows, block * unsigned{moe_item_columns}};
        store_.store(packed, waiting, row_);
        waiting.column += 128;
        kit::wgmma_wait<0>(odd);
        Store::pack(odd, packed);
        release(steps);
      }
    }
    if (waiting.rows != 0) store_.store(packed, waiting, row_);
    store_.finish();
  }

 private:
  __device__ void load(Rows& rows) {
    const unsigned lane = kit::lane_index();
    const unsigned row = row_ + kit::warp_index() % 4 * 16 + lane % 16;
#pragma unroll
    for (unsigned s = 0; s < steps; ++s) {
      const unsigned char* const slot = shared_.slots[consumer_.wait()];
#pragma unroll
      for (unsigned k = 0; k < Tile::slices; ++k) {
        kit::load_matrices(rows[s][k], slot + Tile::offset(row, 16 * k + lane / 16 * 8));
      }
    }
  }

  // Products have been started with the rows, so that they are in registers.
  __device__ void release_rows() {
    kit::named_barrier_wait(1 + number_, kit::warpgroup_threads);
    release(steps);
  }

  // Starts d = rows * weights, for the next 128 columns. `releases`: products of the columns before
  // them are in flight; they end meanwhile, and their slots are released.
  template <bool releases>
  __device__ void multiply(float (&d)[64], const Rows& rows) {
#pragma unroll
    for (unsigned s = 0; s < steps; ++s) {
      const unsigned slot = consumer_.wait();
      const kit::Operand<Tile> weights{weights_.bits + slot * (Tile::bytes >> 4)};
      kit::wgmma_fence();
#pragma unroll
      for (unsigned k = 0; k < Tile::slices; ++k) {
        kit::multiply<Element>(d, rows[s][k], weights.slice(k), s > 0 || k > 0);
      }
      kit::wgmma_commit();
      if constexpr (releases) {
        kit::wgmma_wait<steps>();
        release(1);
      }
    }
  }

  // Leaves an item to the other consumer.
  __device__ void leave(unsigned slots) {
    for (unsigned i = 0; i < slots; ++i) {
      consumer_.wait();
      release(1);
    }
  }

  __device__ void release(unsigned slots) {
    for (unsigned i = 0; i < slots; ++i) {
      if (threadIdx.x % kit::warpgroup_threads == 0) consumer_.empty(consumer_.oldest()).arrive();
      consumer_.skip_release();
    }
  }

  typename Narrow::Shared& shared_;
  kit::Consumer<kit::Barrier, Narrow::depth> consumer_;
  Store store_;
  kit::Operand<Tile> weights_;
  unsigned blocks_, number_, row_;
};

template <class Narrow>
__global__ void __launch_bounds__(Narrow::threads, 1)
    narrow_down(const __grid_constant__ typename Narrow::Arguments operands,
                const __grid_constant__ typename Narrow::Store::Arguments out,
                const __grid_constant__ typename Narrow::Order order) {
  // Shared storage
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<typename Narrow::Shared*>(memory);

  // Setup
  const unsigned group = kit::warpgroup_index();
  if (threadIdx.x == kit::warp_threads) {  // not the warp that initialises the ring
    kit::prefetch(operands.h);
    kit::prefetch(operands.down);
    Narrow::Store::prefetch_arguments(out);
  }
  if (threadIdx.x == 0) {
    shared.ring.init(1, Narrow::consumers);
    order.init(shared.tiles, 1 + Narrow::consumers * kit::warpgroup_threads);
    kit::fence_barrier_init();
  }
  __syncthreads();
  kit::wait_for_previous();
  kit::let_next_start();

  // Roles
  if (group == 0) {
    kit::give_registers<Narrow::loader_registers>();
    if (kit::warp_index() == 0 && kit::elect()) {
      MoeNarrowLoader<Narrow> loader(shared, operands);
      typename Narrow::Order::template Tiles<false> items(order, shared.tiles, true);
      kit::GemmTile item;
      while (items.take(item)) {
        loader.load(item, [&](unsigned step, unsigned steps) { items.look_ahead(step, steps); });
      }
    }
  } else {
    kit::take_registers<Narrow::consumer_registers>();
    MoeNarrowConsumer<Narrow> consumer(shared, out, operands.blocks, group - 1);
    typename Narrow::Order::template Tiles<true> items(order, shared.tiles, false);
    consumer.run(items);
  }
}

}  // namespace ps::detail
