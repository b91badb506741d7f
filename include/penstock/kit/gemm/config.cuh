// The shape of a matrix product's kernel: C (M x N) = A (M x K) * B^T (N x K), both K-major. A
// block has a loader warpgroup, and consumer warpgroups of 64 rows of its tile each.
#pragma once

#include <cstdint>

#include "penstock/kit/barrier.cuh"
#include "penstock/kit/gemm/trace.cuh"
#include "penstock/kit/ring.h"
#include "penstock/kit/tile.h"
#include "penstock/kit/warp.cuh"

namespace ps::kit {

template <class Element_, unsigned tile_m_, unsigned tile_n_, unsigned depth_,
          unsigned cluster_ = 1>
struct GemmConfig {
  using Element = Element_;
  static constexpr unsigned tile_m = tile_m_;
  static constexpr unsigned tile_n = tile_n_;
  static constexpr unsigned tile_k = 64;         // one swizzle span of 16-bit elements
  static constexpr unsigned depth = depth_;      // slots of A and B on their way
  static constexpr unsigned cluster = cluster_;  // blocks, one above the other, that share B
  static constexpr bool traced = false;          // TracedGemm<...> is
  static constexpr unsigned consumers = tile_m / 64;
  static constexpr unsigned threads = (1 + consumers) * warpgroup_threads;

  using TileA = SharedTile<Element, tile_m, tile_k>;
  using TileB = SharedTile<Element, tile_n, tile_k>;
  // What one block of the cluster loads of B, for all of them.
  static constexpr unsigned shared_rows = tile_n / cluster;
  static constexpr unsigned slot_bytes = TileA::bytes + TileB::bytes;
  [[deprecated("use slot_bytes")]] static constexpr unsigned stage_bytes = slot_bytes;
  // A piece of C on its way out, two for each consumer; every warp has 16 rows of it.
  using PieceC = SharedTile<Element, 64, 64>;

  using TileRing = Ring<Barrier, depth>;
  using StageRing [[deprecated("use TileRing")]] = TileRing;

  // Of what the launch gave each thread, the loader keeps little and the accumulators need much;
  // the sum stays the same.
  static constexpr unsigned launch_registers = 65536 / threads / 8 * 8;
  static constexpr unsigned loader_registers = consumers == 2 ? 40 : 32;
  static constexpr unsigned consumer_registers = consumers == 1 ? 248 : consumers == 2 ? 232 : 160;

  static_assert(depth >= 2, "a slot goes back when the next one is being multiplied");
  static_assert(tile_m % 64 == 0 && consumers >= 1 && consumers <= 3, "one to three consumers");
  static_assert(tile_n % 64 == 0 && tile_n <= 256, "N is 64, 128, 192 or 256");
  static_assert(cluster == 1 || cluster == 2 || cluster == 4, "clusters of 1, 2 or 4 blocks");
  static_assert(loader_registers + consumers * consumer_registers <=
                    (1 + consumers) * (launch_registers < 248 ? launch_registers : 248),
                "no more registers than there are");
  static_assert(shared_rows % TileB::row_step == 0, "every block loads whole groups of rows");
};

// In dynamic shared memory, from a multiple of 1024 bytes on.
template <class Config>
struct GemmShared : GemmIssued<Config::traced, Config::depth> {
  alignas(1024) unsigned char a[Config::depth][Config::TileA::bytes];
  alignas(1024) unsigned char b[Config::depth][Config::TileB::bytes];
  alignas(1024) unsigned char c[Config::consumers][2][Config::PieceC::bytes];
  typename Config::TileRing ring;
};

}  // namespace ps::kit
