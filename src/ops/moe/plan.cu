// Sorts (token, choice) pairs by expert and lists the work of the two products, on the device and
// always with the same result. Two launches: `count` makes a histogram per block, `sort` adds up
// the histograms before its own and places its pairs. Few pairs are sorted by one block, which
// needs no histograms.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "ops/moe/gpu.h"
#include "ops/moe/passes.h"
#include "penstock/kit/launch.cuh"

namespace ps::detail {
namespace {

constexpr unsigned threads = 512;
constexpr unsigned warps = threads / 32;
constexpr unsigned most_experts = 1024;
constexpr unsigned per_thread = most_experts / threads;  // experts of a thread in a scan

struct Plan {
  const void* ids;
  bool wide_ids;  // i64
  unsigned pairs, experts;
  unsigned pairs_per_block;  // a multiple of `threads`
  const std::int32_t* slots;
  unsigned slot_count;
  unsigned tile_units;  // the height of tiles
  MoeProduct up, down;
  bool narrow;  // whether the items of down are those of a MoeNarrowTable
  MoePath path;
  unsigned rows_per_pass;
  MoeSpace space;

  // The expert of a pair, or `experts` if there is no such expert.
  __device__ unsigned expert(unsigned pair) const {
    if (ids == nullptr) return 0;
    const std::int64_t id = wide_ids ? static_cast<const std::int64_t*>(ids)[pair]
                                     : static_cast<const std::int32_t*>(ids)[pair];
    return id >= 0 && id < experts ? static_cast<unsigned>(id) : experts;
  }

  // The slot of an expert's weights, or slot_count if they are not there.
  __device__ unsigned slot(unsigned of) const {
    if (slots == nullptr) return of;
    const std::int32_t found = slots[of];
    return found >= 0 && static_cast<unsigned>(found) < slot_count ? static_cast<unsigned>(found)
                                                                   : slot_count;
  }
};

// Exclusive prefix sums of per_thread values per thread, in thread order. Returns the sum before
// this thread's first value; `total` is the sum of all. All threads of the block call it.
__device__ unsigned scan(const unsigned (&values)[per_thread], unsigned& total) {
  __shared__ unsigned sums[warps];
  unsigned own = 0;
  for (const unsigned value : values) own += value;
  unsigned through = own;
  for (unsigned distance = 1; distance < 32; distance *= 2) {
    const unsigned other = __shfl_up_sync(~0u, through, distance);
    if (threadIdx.x % 32 >= distance) through += other;
  }
  if (threadIdx.x % 32 == 31) sums[threadIdx.x / 32] = through;
  __syncthreads();
  unsigned before = 0;
  total = 0;
  for (unsigned warp = 0; warp < warps; ++warp) {
    if (warp < threadIdx.x / 32) before += sums[warp];
    total += sums[warp];
  }
  __syncthreads();
  return before + through - own;
}

__global__ void __launch_bounds__(threads) count(const Plan plan) {
  __shared__ unsigned histogram[most_experts];
  for (unsigned e = threadIdx.x; e < plan.experts; e += threads) histogram[e] = 0;
  __syncthreads();
  kit::wait_for_previous();
  kit::let_next_start();
  const unsigned begin = blockIdx.x * plan.pairs_per_block;
  const unsigned end = min(begin + plan.pairs_per_block, plan.pairs);
  for (unsigned pair = begin + threadIdx.x; pair < end; pair += threads) {
    const unsigned expert = plan.expert(pair);
    if (expert < plan.experts) atomicAdd(&histogram[expert], 1);
  }
  __syncthreads();
  for (unsigned e = threadIdx.x; e < plan.experts; e += threads) {
    plan.space.histograms[blockIdx.x * plan.experts + e] = histogram[e];
  }
}

// Calls amount(rows) for each expert that is in a slot, or for all of them, and adds up. `first`,
// if there is one, receives the sum before each expert. Returns the sum of all.
template <class Amount>
__device__ unsigned add_experts(const Plan& plan, const unsigned* offsets, bool in_slots,
                                const Amount& amount, unsigned* first) {
  unsigned values[per_thread];
  for (unsigned i = 0; i < per_thread; ++i) {
    const unsigned e = threadIdx.x * per_thread + i;
    const bool counts = e < plan.experts && (!in_slots || plan.slot(e) < plan.slot_count);
    values[i] = counts ? amount(offsets[e + 1] - offsets[e]) : 0;
  }
  unsigned total = 0;
  unsigned before = scan(values, total);
  for (unsigned i = 0; i < per_thread && first != nullptr; ++i) {
    const unsigned e = threadIdx.x * per_thread + i;
    if (e < plan.experts) first[e] = before;
    before += values[i];
  }
  __syncthreads();
  return total;
}

// Whether the kernel `decode` computes the products. Depends on the rows of all experts, so that
// it is the same whichever of them are in slots.
__device__ bool decodes(const Plan& plan, const unsigned* offsets) {
  if (plan.path != MoePath::by_counts) return plan.path == MoePath::decode;
  const auto shares = [](unsigned rows) { return moe_passes(rows, moe_share_rows); };
  const auto any = [](unsigned rows) { return rows > 0 ? 1u : 0u; };
  return moe_decodes(add_experts(plan, offsets, false, shares, nullptr),
                     add_experts(plan, offsets, false, any, nullptr));
}

// Calls write(expert, slot, rows) in all threads of a warp for each expert that has rows and is in
// a slot. The experts are shared out among the warps of the grid.
template <class Write>
__device__ void each_expert(const Plan& plan, const unsigned* offsets, const Write& write) {
  for (unsigned e = blockIdx.x * warps + threadIdx.x / 32; e < plan.experts;
       e += gridDim.x * warps) {
    const unsigned rows = offsets[e + 1] - offsets[e], slot = plan.slot(e);
    if (rows > 0 && slot < plan.slot_count) write(e, slot, rows);
  }
}

// Lists the items of a product and returns their number. `first` is memory for a number per expert.
__device__ unsigned list_items(const Plan& plan, const MoeProduct& product, std::uint64_t* items,
                               const unsigned* offsets, unsigned* first) {
  __shared__ unsigned first_tall[most_experts];
  const auto tiles = [&](unsigned rows) { return moe_tiles(rows, plan.tile_units); };
  const auto tall_rows = [&](unsigned rows) { return moe_tall_rows(rows, plan.tile_units); };
  const auto tall_tiles = [&](unsigned rows) { return tiles(tall_rows(rows)); };
  const unsigned all = add_experts(plan, offsets, true, tiles, first);
  const unsigned all_tall =
      product.short_last ? add_experts(plan, offsets, true, tall_tiles, first_tall) : 0;
  each_expert(plan, offsets, [&](unsigned e, unsigned slot, unsigned rows) {
    // Rows `begin` to `end` of the expert, behind the items of `before` tiles.
    const auto write = [&](unsigned before, unsigned begin, unsigned end) {
      const unsigned count = tiles(end - begin) * product.columns;
      for (unsigned i = threadIdx.x % 32; i < count; i += 32) {
        items[before * product.columns + i] =
            moe_item(i, end - begin, product.columns, product.panel, slot, offsets[e] + begin,
                     plan.tile_units)
                .packed();
      }
    };
    if (!product.short_last) return write(first[e], 0, rows);
    const unsigned tall = tall_rows(rows);
    write(first_tall[e], 0, tall);
    write(all_tall + first[e] - first_tall[e], tall, rows);
  });
  return all * product.columns;
}

// Lists the items of the down-projection of narrow experts, and returns their number.
__device__ unsigned list_narrow_items(const Plan& plan, const unsigned* offsets, unsigned* first) {
  const auto tiles = [](unsigned rows) { return moe_tiles(rows, moe_narrow_tile_units); };
  const MoeNarrowTable table{add_experts(plan, offsets, true, tiles, first), plan.down.columns};
  each_expert(plan, offsets, [&](unsigned e, unsigned slot, unsigned rows) {
    for (unsigned i = threadIdx.x % 32; i < tiles(rows); i += 32) {
      const MoeTile tile = moe_tile(rows, i, moe_narrow_tile_units);
      const unsigned number = first[e] + i, shares = table.shares(number);
      std::uint64_t* const items = plan.space.down_items + table.before(number);
      for (unsigned j = 0; j < table.items(shares); ++j) {
        items[j] = MoeItem{slot, offsets[e] + tile.first, tile.rows, shares + j}.packed();
      }
    }
  });
  return table.before(table.tiles);
}

// Lists the passes and returns their number.
__device__ unsigned list_passes(const Plan& plan, const unsigned* offsets, unsigned* first) {
  const auto passes = [&](unsigned rows) { return moe_passes(rows, plan.rows_per_pass); };
  const unsigned total = add_experts(plan, offsets, true, passes, first);
  each_expert(plan, offsets, [&](unsigned e, unsigned slot, unsigned rows) {
    for (unsigned i = threadIdx.x % 32; i < passes(rows); i += 32) {
      plan.space.passes[first[e] + i] =
          moe_pass(i, rows, plan.rows_per_pass, slot, offsets[e]).packed();
    }
  });
  return total;
}

// Lists the work of all experts whose weights are in a slot, in one of the tables; the other one is
// empty. Every block calls it with the same offsets. `first` is memory for a number per expert.
__device__ void list_work(const Plan& plan, const unsigned* offsets, unsigned* first) {
  unsigned up = 0, down = 0, passes = 0;
  if (decodes(plan, offsets)) {
    passes = list_passes(plan, offsets, first);
  } else {
    up = list_items(plan, plan.up, plan.space.up_items, offsets, first);
    down = plan.narrow ? list_narrow_items(plan, offsets, first)
                       : list_items(plan, plan.down, plan.space.down_items, offsets, first);
  }
  if (blockIdx.x != 0) return;
  // Readers load the first 32 passes before they know how many there are.
  if (threadIdx.x >= passes && threadIdx.x < 32) plan.space.passes[threadIdx.x] = 0;
  if (threadIdx.x < 5) {
    const unsigned counters[] = {up, down, 0, 0, passes};
    plan.space.counters[threadIdx.x] = counters[threadIdx.x];
  }
}

// Adds up the histograms: of all blocks into `totals`, of the blocks before this one into
// `earlier`, both in shared memory and 0 before. If there are fewer experts than threads, several
// threads share the blocks of an expert.
__device__ void add_histograms(const Plan& plan, unsigned* totals, unsigned* earlier) {
  const unsigned shares = max(threads / plan.experts, 1u);
  const unsigned share = min(threadIdx.x / plan.experts, shares);
  for (unsigned e = threadIdx.x - (shares > 1 ? share * plan.experts : 0);
       e < plan.experts && share < shares; e += threads) {
    unsigned all = 0, before = 0;
#pragma unroll 16
    for (unsigned block = share; block < gridDim.x; block += shares) {
      const unsigned found = plan.space.histograms[block * plan.experts + e];
      all += found;
      before += block < blockIdx.x ? found : 0;
    }
    atomicAdd(&totals[e], all);
    atomicAdd(&earlier[e], before);
  }
}

// Places the block's pairs. A warp has a contiguous part of them and counts it first; pairs of the
// same expert keep their order. `alone`: the block has all pairs, and nothing is counted before.
// Dynamic shared memory: a count per warp and expert.
template <bool alone>
__global__ void __launch_bounds__(threads, 1) sort(const Plan plan, bool and_list) {
  __shared__ unsigned offsets[most_experts + 1], next[most_experts];
  extern __shared__ unsigned all_counts[];
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  unsigned* const counts = all_counts + warp * plan.experts;
  for (unsigned i = threadIdx.x; i < warps * plan.experts; i += threads) all_counts[i] = 0;
  for (unsigned e = threadIdx.x; e < plan.experts; e += threads) offsets[e] = next[e] = 0;
  __syncthreads();
  kit::wait_for_previous();
  kit::let_next_start();

  const unsigned per_warp = plan.pairs_per_block / warps;
  const unsigned begin = blockIdx.x * plan.pairs_per_block + warp * per_warp;
  const auto each = [&](const auto& place) {
    constexpr unsigned batch = 4;  // loads in flight
    for (unsigned first = begin; first < begin + per_warp; first += 32 * batch) {
      unsigned expert[batch];
#pragma unroll
      for (unsigned i = 0; i < batch; ++i) {
        const unsigned pair = first + 32 * i + lane;
        const bool ours = 32 * i < begin + per_warp - first && pair < plan.pairs;
        expert[i] = ours ? plan.expert(pair) : plan.experts;
      }
#pragma unroll
      for (unsigned i = 0; i < batch; ++i) {
        const unsigned pair = first + 32 * i + lane;
        if (32 * i >= begin + per_warp - first) break;
        const unsigned peers = __match_any_sync(~0u, expert[i]);
        const unsigned rank = __popc(peers & ((1u << lane) - 1));
        if (pair < plan.pairs) place(pair, expert[i], rank);
        __syncwarp();
        if (rank == 0 && expert[i] < plan.experts) {
          counts[expert[i]] += static_cast<unsigned>(__popc(peers));
        }
        __syncwarp();
      }
    }
  };
  each([](unsigned, unsigned, unsigned) {});
  __syncthreads();
  // Counts become numbers of pairs in the warps before.
  for (unsigned e = threadIdx.x; e < plan.experts; e += threads) {
    unsigned counted[warps], sum = 0;
#pragma unroll
    for (unsigned w = 0; w < warps; ++w) counted[w] = all_counts[w * plan.experts + e];
#pragma unroll
    for (unsigned w = 0; w < warps; ++w) {
      all_counts[w * plan.experts + e] = sum;
      sum += counted[w];
    }
    if constexpr (alone) offsets[e] = sum;
  }
  if constexpr (!alone) add_histograms(plan, offsets, next);
  __syncthreads();

  unsigned totals[per_thread];
  for (unsigned i = 0; i < per_thread; ++i) {
    const unsigned e = threadIdx.x * per_thread + i;
    totals[i] = e < plan.experts ? offsets[e] : 0;
  }
  unsigned all = 0;
  unsigned before = scan(totals, all);
  for (unsigned i = 0; i < per_thread; ++i) {
    const unsigned e = threadIdx.x * per_thread + i;
    if (e < plan.experts) {
      offsets[e] = before;
      next[e] += before;
    }
    before += totals[i];
  }
  if (threadIdx.x == 0) offsets[plan.experts] = all;
  __syncthreads();

  each([&](unsigned pair, unsigned expert, unsigned rank) {
    int place = -1;
    if (expert < plan.experts) {
      const unsigned row = next[expert] + counts[expert] + rank;
      plan.space.source[row] = pair;
      if (and_list && plan.slot(expert) < plan.slot_count) place = static_cast<int>(row);
    }
    plan.space.place[pair] = place;
  });

  if (blockIdx.x == 0) {
    for (unsigned e = threadIdx.x; e <= plan.experts; e += threads) {
      plan.space.offsets[e] = offsets[e];
    }
  }
  __syncthreads();
  if (and_list) list_work(plan, offsets, next);
}

__global__ void __launch_bounds__(threads) list(const Plan plan) {
  __shared__ unsigned offsets[most_experts + 1], first[most_experts];
  kit::wait_for_previous();
  kit::let_next_start();
  for (unsigned e = threadIdx.x; e <= plan.experts; e += threads) {
    offsets[e] = plan.space.offsets[e];
  }
  __syncthreads();
  list_work(plan, offsets, first);
  for (unsigned e = blockIdx.x; e < plan.experts; e += gridDim.x) {
    if (plan.slot(e) >= plan.slot_count) continue;
    for (unsigned row = offsets[e] + threadIdx.x; row < offsets[e + 1]; row += threads) {
      plan.space.place[plan.space.source[row]] = static_cast<int>(row);
    }
  }
}

Plan plan_of(const MoeWork& work, MoePath path, unsigned blocks) {
  const auto u = [](std::int64_t value) { return static_cast<unsigned>(value); };
  const std::int64_t step = std::int64_t{blocks} * threads;
  const unsigned tile_units =
      work.kernel == MoeKernel::portable ? moe_portable_tile_units : moe_tile_units;
  return {.ids = work.ids,
          .wide_ids = work.id_type == DType::i64,
          .pairs = u(work.rows()),
          .experts = u(work.experts),
          .pairs_per_block = u((work.rows() + step - 1) / step * threads),
          .slots = work.slots,
          .slot_count = u(work.slot_count),
          .tile_units = tile_units,
          .up = moe_product(moe_up_columns(work.width), work.hidden, tile_units),
          .down = moe_product(moe_down_columns(work.hidden), work.width, tile_units),
          .narrow = moe_narrow(work),
          .path = path,
          .rows_per_pass = moe_rows_per_pass(work.tokens),
          .space = MoeSpace(work)};
}

kit::LaunchOptions options(unsigned blocks, std::size_t shared_bytes = 0) {
  return {
      .grid = blocks, .block = threads, .shared_bytes = shared_bytes, .overlaps_previous = true};
}

}  // namespace

void moe_sort(const MoeWork& work, MoePath path, bool and_list, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(moe_blocks(work.rows()));
  const Plan plan = plan_of(work, path, blocks);
  const kit::LaunchOptions place = options(blocks, warps * plan.experts * sizeof(unsigned));
  if (blocks == 1) return kit::launch(sort<true>, place, stream, plan, and_list);
  kit::launch(count, options(blocks), stream, plan);
  kit::launch(sort<false>, place, stream, plan, and_list);
}

void moe_list(const MoeWork& work, MoePath path, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(std::min(work.experts, moe_count_blocks));
  kit::launch(list, options(blocks), stream, plan_of(work, path, blocks));
}

}  // namespace ps::detail
