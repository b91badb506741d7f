// The configuration of a matrix-product kernel: C (M x N) = A (M x K) * B^T (N x K), A and B
// K-major unless MnMajorB says otherwise. A block has one loader warpgroup, and one consumer
// warpgroup per 64 rows of its tile unless the configuration names another number.
//
// A cluster is one of two things: `cluster` blocks with tiles of one column, which share what they
// load of B, or `split` blocks that all have the same tile, each a part of its steps along K, and
// add up their sums at the end (gemm/exchange.cuh).
#pragma once

#include <cstdint>

#include "penstock/kit/barrier.cuh"
#include "penstock/kit/gemm/trace.cuh"
#include "penstock/kit/ring.h"
#include "penstock/kit/tile.h"
#include "penstock/kit/warp.cuh"

namespace ps::kit {

template <class Element_, unsigned tile_m_, unsigned tile_n_, unsigned depth_,
          unsigned cluster_ = 1, unsigned consumers_ = tile_m_ / 64, unsigned split_ = 1>
struct GemmConfig {
  using Element = Element_;
  static constexpr unsigned tile_m = tile_m_;
  static constexpr unsigned tile_n = tile_n_;
  static constexpr unsigned tile_k = 64;         // one swizzle span of 16-bit elements
  static constexpr unsigned depth = depth_;      // slots of the ring of A and B tiles
  static constexpr unsigned cluster = cluster_;  // blocks in M that share tiles of B
  static constexpr unsigned split = split_;      // blocks that share the steps of a tile
  static constexpr unsigned cluster_blocks = cluster * split;
  static constexpr unsigned consumers = consumers_;
  static constexpr bool traced = false;  // true in TracedGemm<...>
  static constexpr unsigned threads = (1 + consumers) * warpgroup_threads;

  using TileA = SharedTile<Element, tile_m, tile_k>;
  using TileB = SharedTile<Element, tile_n, tile_k>;
  // Rows of B that each block of the cluster loads, for all blocks.
  static constexpr unsigned shared_rows = tile_n / cluster;
  static constexpr unsigned slot_bytes = TileA::bytes + TileB::bytes;
  [[deprecated("use slot_bytes")]] static constexpr unsigned stage_bytes = slot_bytes;

  using TileRing = Ring<Barrier, depth>;
  using StageRing [[deprecated("use TileRing")]] = TileRing;

  static_assert(depth >= 1, "at least one slot");
  static_assert(tile_m % 64 == 0 && consumers >= 1 && consumers <= 3, "one to three consumers");
  static_assert(tile_n % 16 == 0 && tile_n >= 64 && tile_n <= 256,
                "N is a multiple of 16, from 64 to 256");
  static_assert(cluster == 1 || cluster == 2 || cluster == 4, "clusters of 1, 2 or 4 blocks");
  static_assert(split == 1 || cluster == 1, "a cluster shares tiles of B or the steps of a tile");
  static_assert(split == 1 || split == 2 || split == 4, "1, 2 or 4 blocks, which own whole warps");
  static_assert(shared_rows % TileB::row_step == 0, "every block loads whole groups of rows");
};

// A configuration whose B is (K x N) in memory, N contiguous. One tensor load writes 64 columns.
template <class Config>
struct MnMajorB : Config {
  using TileB = SharedTile<typename Config::Element, Config::tile_n, Config::tile_k, Major::mn>;
  static_assert(Config::shared_rows % TileB::row_step == 0, "every block loads whole panels");
};

}  // namespace ps::kit
