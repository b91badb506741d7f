// The kernel of the rungs on rings: a loader warp, compute warps and a storer warp, with a ring of
// slots from the loader to compute and one from compute to the storer.
//
// Both rings are about the same slots: compute works in place, so that a tile takes one slot from
// its load to the end of its store, and every slot serves whatever is slowest just then. Only the
// storer gives a slot back, to both rings; compute needs no room of its own to write to. Only the
// loader knows which tile comes next: its number travels with the slot.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "copy/support/tile.cuh"
#include "penstock/kit/barrier.cuh"
#include "penstock/kit/bulk.cuh"
#include "penstock/kit/fence.cuh"
#include "penstock/kit/launch.cuh"
#include "penstock/kit/ring.h"
#include "penstock/kit/roles.cuh"
#include "penstock/kit/trace.cuh"
#include "support/kernel_use.cuh"

namespace ladder::copy {

// What is compiled into the kernel. The rings and the roles stay in all three.
enum class Side {
  both,
  copy,     // tiles pass through without arithmetic
  compute,  // arithmetic on whatever shared memory holds, without loads and stores
};

// Configuration.
template <unsigned depth_, unsigned compute_warps_ = 8, Side side_ = Side::both,
          bool traced_ = false, unsigned at_once_ = 4>
struct RolesConfig {
  static constexpr unsigned depth = depth_;
  static constexpr unsigned compute_warps = compute_warps_;
  static constexpr Side side = side_;
  static constexpr bool traced = traced_;
  static constexpr unsigned at_once = at_once_;  // vectors that a thread computes side by side

  // A traced kernel has one more warp, which watches for loads to land: the loader itself goes on.
  using Team = ps::kit::Roles<1, compute_warps, traced ? 2 : 1>;

  // Stores that may still read their slots when the next one is issued. Deep rings can spare the
  // slot; in a shallow one it is missed.
  static constexpr unsigned stores_in_flight = depth >= 4 && !traced ? 1 : 0;
};

// A piece of memory that is one tile.
struct Piece {
  const unsigned char* in;
  unsigned char* out;
  unsigned bytes;
};

// What the kernel works on: numbered pieces. This: one array in tiles of equal size, but for the
// last.
struct Tiles {
  const unsigned char* in;
  unsigned char* out;
  std::size_t bytes;
  unsigned tile_bytes;
  unsigned count;

  Tiles(const Work& work, unsigned tile)
      : in(reinterpret_cast<const unsigned char*>(work.in)),
        out(reinterpret_cast<unsigned char*>(work.out)),
        bytes(work.count * sizeof(float)),
        tile_bytes(tile),
        count(static_cast<unsigned>((bytes + tile - 1) / tile)) {}

  __device__ unsigned bytes_of(unsigned tile) const {
    const std::size_t left = bytes - std::size_t{tile} * tile_bytes;
    return left < tile_bytes ? static_cast<unsigned>(left) : tile_bytes;
  }
  __device__ Piece piece(unsigned tile) const {
    const std::size_t at = std::size_t{tile} * tile_bytes;
    return {in + at, out + at, bytes_of(tile)};
  }
};

// Which tile a block takes next. In step: the blocks' tiles lie one behind the other, and each
// block skips those of all others. By a counter: whoever is ready takes the next one, so that the
// blocks stay together in memory and end together, whatever else slows one of them down.
struct Order {
  unsigned* counter;  // two words in global memory, zero before and after a launch; null: in step

  // The first is the block's own, so that no block begins by waiting for a number.
  __device__ unsigned first() const { return blockIdx.x; }
  __device__ unsigned next(unsigned tile) const {
    return gridDim.x + (counter == nullptr ? tile : atomicAdd(counter, 1));
  }
  // After a tile beyond the last. The last block to say so leaves the counter as it was.
  __device__ void end() const {
    if (counter == nullptr || atomicAdd(counter + 1, 1) + 1 < gridDim.x) return;
    counter[0] = counter[1] = 0;
  }
};

template <class Config, class Pieces = Tiles>
__global__ void __launch_bounds__(Config::Team::threads, 1)
    roles_kernel(const Pieces tiles, const Order order, const int rounds,
                 const ps::kit::TraceBuffer<Config::traced> buffer) {
  using namespace ps::kit;
  using Team = typename Config::Team;
  using Slots = Ring<Barrier, Config::depth>;
  constexpr Side side = Config::side;

  // Shared storage.
  extern __shared__ __align__(128) unsigned char slots[];
  __shared__ Slots loaded, computed;
  __shared__ unsigned numbers[Config::depth];  // of the tiles; one beyond the last ends all
  __shared__ std::uint64_t issued[Config::traced ? Config::depth : 1];  // when its load began
  const auto slot_at = [&](unsigned slot) { return slots + slot * tiles.tile_bytes; };

  // Setup.
  if constexpr (side == Side::compute) {
    // Numbers of all kinds: arithmetic on equal ones takes less power, and may run faster.
    auto* const floats = reinterpret_cast<float*>(slots);
    for (unsigned i = threadIdx.x; i < Config::depth * tiles.tile_bytes / 4; i += Team::threads) {
      floats[i] = static_cast<float>((i + blockIdx.x) * 2654435761u) * 0x1p-30F - 2.0F;
    }
  }
  if (threadIdx.x == 0) {
    loaded.init(1, Config::traced ? 2 : 1);
    computed.init(Config::compute_warps, 1);
    fence_barrier_init();
  }
  __syncthreads();
  let_next_start();     // both for kernels that are launched early,
  wait_for_previous();  // and nothing in other launches
  ps::kit::Trace<Config::traced> trace(buffer);
  const Role role = Team::role();
  const bool signs = role == Role::storer && Team::index(role) == 0;
  trace.begin(signs);

  // Roles.
  if (role == Role::loader) {
    if (elect()) {
      Producer<Barrier, Config::depth> loads(loaded);
      unsigned tile = order.first();
      while (tile < tiles.count) {
        const unsigned following = order.next(tile);  // early: reading a counter takes a while
        const Piece piece = tiles.piece(tile);
        const unsigned slot = loads.acquire();
        numbers[slot] = tile;
        if constexpr (Config::traced) issued[slot] = SmSource::now();
        if constexpr (side != Side::compute) {
          loads.full(slot).expect(piece.bytes);
          bulk_load(slot_at(slot), piece.in, piece.bytes, loads.full(slot), evict_first());
        }
        loads.commit();
        tile = following;
      }
      numbers[loads.acquire()] = tile;
      loads.commit();
      order.end();
    }
  } else if (role == Role::compute) {
    Consumer<Barrier, Config::depth> inputs(loaded);
    Producer<Barrier, Config::depth> outputs(computed);
    auto spans = trace.role(1, Team::index(role) == 0);
    for (bool more = true; more;) {
      const unsigned slot = inputs.wait(), tile = numbers[slot];
      outputs.acquire();  // the same slot, and free: it was released before it was loaded again
      const auto start = spans.now();
      more = tile < tiles.count;
      if (side != Side::copy && more && rounds > 0) {
        f_of_tile<Config::at_once>(reinterpret_cast<float4*>(slot_at(slot)),
                                   tiles.bytes_of(tile) / static_cast<unsigned>(sizeof(float4)),
                                   rounds, Team::index(role), Team::compute_threads);
        fence_shared_to_async();
      }
      __syncwarp();
      if (lane_index() == 0) outputs.commit();
      if (more) spans.record(tile, start);
    }
  } else if (Team::index(role) == 0) {
    Consumer<Barrier, Config::depth> results(computed);
    const auto give_back = [&] {
      const unsigned slot = results.oldest();
      results.release();
      loaded.empty[slot].arrive();
    };
    auto spans = trace.role(2, true);
    for (unsigned held = 0;;) {
      const unsigned slot = results.wait(), tile = numbers[slot];
      if (tile >= tiles.count) break;
      const auto start = spans.now();
      if constexpr (side != Side::compute) {
        const Piece piece = tiles.piece(tile);
        bulk_store(piece.out, slot_at(slot), piece.bytes, evict_first());
        bulk_commit();
        bulk_wait_read<Config::stores_in_flight>();
      }
      spans.record(tile, start);
      if (held == Config::stores_in_flight) {
        give_back();
      } else {
        ++held;
      }
    }
    bulk_wait_read<0>();  // the block must not exit before its shared memory has been read
  } else if (Config::traced && Team::index(role) == warp_threads) {
    // The watcher: takes part in the loader's ring, so that no phase passes it by.
    Consumer<Barrier, Config::depth> landed(loaded);
    auto spans = trace.role(0, true);
    for (;;) {
      const unsigned slot = landed.wait(), tile = numbers[slot];
      if (tile >= tiles.count) break;
      if constexpr (Config::traced) spans.record(tile, issued[slot]);
      landed.release();
    }
  }
  trace.end(signs);
}

// Launch.
struct RolesShape {
  unsigned tile_bytes = 32 * 1024;
  unsigned blocks_per_multiprocessor = 1;
  bool by_counter = false;  // else in step
};

// The two words that blocks count with; for one launch at a time.
class TileCounter {
 public:
  // Zero for what `stream` does from now on.
  explicit TileCounter(cudaStream_t stream) {
    using ps::kit::detail::check;
    check(cudaMalloc(&words_, bytes), "cudaMalloc");
    check(cudaMemsetAsync(words_, 0, bytes, stream), "cudaMemsetAsync");
  }
  ~TileCounter() { cudaFree(words_); }
  TileCounter(const TileCounter&) = delete;
  TileCounter& operator=(const TileCounter&) = delete;
  Order order() const { return {words_}; }

 private:
  static constexpr std::size_t bytes = 2 * sizeof(unsigned);
  unsigned* words_ = nullptr;
};

template <class Config, class Pieces>
void launch_roles(const Pieces& pieces, const RolesShape& shape, Order order, int rounds,
                  cudaStream_t stream, const ps::kit::TraceBuffer<Config::traced>& buffer = {},
                  bool early = false) {
  const unsigned most = multiprocessors() * shape.blocks_per_multiprocessor;
  ps::kit::launch(roles_kernel<Config, Pieces>,
                  {.grid = pieces.count < most ? pieces.count : most,
                   .block = Config::Team::threads,
                   .shared_bytes = std::size_t{shape.tile_bytes} * Config::depth,
                   .overlaps_previous = early},
                  stream, pieces, order, rounds, buffer);
}

template <class Config>
Kernel roles(std::string label, RolesShape shape, std::vector<Intensity> at,
             ps::kit::TraceBuffer<Config::traced> buffer = {}) {
  // Made by the first launch, on the device that is current then.
  const auto counter = std::make_shared<std::unique_ptr<TileCounter>>();
  return {.label = std::move(label),
          .launch =
              [=](const Work& work, cudaStream_t stream) {
                if (shape.by_counter && !*counter) *counter = std::make_unique<TileCounter>(stream);
                const Order order = shape.by_counter ? (*counter)->order() : Order{nullptr};
                launch_aligned(work, 4, stream, [&](const Work& aligned) {
                  launch_roles<Config>(Tiles(aligned, shape.tile_bytes), shape, order,
                                       aligned.rounds, stream, buffer);
                });
              },
          .use =
              [=] {
                return kernel_use(roles_kernel<Config>, Config::Team::threads,
                                  std::size_t{shape.tile_bytes} * Config::depth);
              },
          .hopper = true,
          .at = std::move(at)};
}

}  // namespace ladder::copy
