// Prepares a launch of attention on Hopper: sets counters to 0, and lists the tiles of sequences of
// several lengths, those with the most keys first. Their order has no effect on results.
#include "ops/attention/sm90.h"
#include "ops/attention/sm90_config.cuh"
#include "penstock/kit/launch.cuh"
#include "penstock/kit/warp.cuh"

namespace ps::detail {
namespace {

constexpr unsigned list_threads = 1024;
constexpr unsigned classes = 1024;  // tiles are sorted by their number of keys, in this many steps

struct ListArguments {
  AttentionSequences sequences;
  AttentionReach reach;
  int rows;        // of a tile
  unsigned shift;  // a tile's number of keys, shifted right by this, is below `classes`
  unsigned* counters;
  AttentionTile* tiles;
  unsigned most_tiles;
};

__global__ void zero_counters(unsigned* counters) {
  kit::wait_for_previous();
  kit::let_next_start();
  counters[threadIdx.x] = 0;
}

// Calls tile(AttentionTile, class) for every tile, with class 0 for those with the most keys. A
// warp takes a sequence, a lane every 32nd tile.
template <class Use>
__device__ void for_each_tile(const ListArguments& arguments, const Use& use) {
  const AttentionReach reach = arguments.reach;
  const int rows = arguments.rows;
  for (int b = static_cast<int>(kit::warp_index()); b < arguments.sequences.count;
       b += list_threads / kit::warp_threads) {
    const AttentionSequence at = arguments.sequences(b);
    for (int row = static_cast<int>(kit::lane_index()) * rows; row < at.q_length;
         row += static_cast<int>(kit::warp_threads) * rows) {
      AttentionTile tile{};
      tile.sequence = b;
      tile.row = at.q_begin + row;
      tile.rows = min(rows, at.q_length - row);
      tile.position = row + at.k_length - at.q_length;
      tile.key = at.k_begin;
      tile.keys = at.k_length;
      const int end = min(at.k_length, tile.position + tile.rows + reach.right);
      const int keys = max(0, end - max(0, tile.position - reach.left));
      use(tile, classes - 1 - (static_cast<unsigned>(keys) >> arguments.shift));
    }
  }
}

// One block.
__global__ void __launch_bounds__(list_threads)
    list_tiles(const __grid_constant__ ListArguments arguments) {
  static_assert(classes == list_threads);
  __shared__ unsigned ends[classes];  // tiles of every class, then where the class begins
  __shared__ unsigned warp_sums[list_threads / kit::warp_threads];
  ends[threadIdx.x] = 0;
  __syncthreads();
  kit::wait_for_previous();
  kit::let_next_start();

  for_each_tile(arguments, [&](const AttentionTile&, unsigned of) { atomicAdd(&ends[of], 1); });
  __syncthreads();

  // Exclusive sums
  const unsigned own_warp = kit::warp_index();
  const unsigned count = ends[threadIdx.x];
  unsigned sum = count;
  for (unsigned by = 1; by < kit::warp_threads; by *= 2) {
    const unsigned before = __shfl_up_sync(~0u, sum, by);
    if (kit::lane_index() >= by) sum += before;
  }
  if (kit::lane_index() == kit::warp_threads - 1) warp_sums[own_warp] = sum;
  __syncthreads();
  unsigned begin = sum - count;
  for (unsigned warp = 0; warp < own_warp; ++warp) begin += warp_sums[warp];
  ends[threadIdx.x] = begin;
  if (threadIdx.x == list_threads - 1) {
    arguments.counters[0] = 0;
    // Sequences that overlap could have more than the table holds.
    arguments.counters[1] = min(begin + count, arguments.most_tiles);
  }
  __syncthreads();

  for_each_tile(arguments, [&](const AttentionTile& tile, unsigned of) {
    const unsigned place = atomicAdd(&ends[of], 1);
    if (place < arguments.most_tiles) arguments.tiles[place] = tile;
  });
}

}  // namespace

void attention_prepare_sm90(const AttentionWork& work, unsigned rows, cudaStream_t stream) {
  auto* const counters = reinterpret_cast<unsigned*>(work.memory + work.space.counters);
  kit::LaunchOptions options;
  options.overlaps_previous = true;
  if (work.sequences.cu_q == nullptr) {
    options.block = 1;
    return kit::launch(zero_counters, options, stream, counters);
  }
  ListArguments arguments{};
  arguments.sequences = work.sequences;
  arguments.reach = work.reach;
  arguments.rows = static_cast<int>(rows);
  while ((work.sequences.max_k >> arguments.shift) >= static_cast<int>(classes)) ++arguments.shift;
  arguments.counters = counters;
  arguments.tiles = reinterpret_cast<AttentionTile*>(work.memory + work.space.tiles);
  arguments.most_tiles = static_cast<unsigned>(work.space.most_tiles);
  options.block = list_threads;
  kit::launch(list_tiles, options, stream, arguments);
}

}  // namespace ps::detail
