// Launches a matrix product on views of its operands.
#pragma once

#include <cstdint>

#include "penstock/base/error.h"
#include "penstock/base/view.h"
#include "penstock/kit/gemm/kernel.cuh"
#include "penstock/kit/launch.cuh"
#include "penstock/kit/tensor_map.h"

namespace ps::kit {

// A tensor map of a matrix with boxes of `rows` x 64, as GemmConfig's tiles need it. Throws as
// encode() does.
inline TensorMap gemm_map(const TensorView& matrix, std::int64_t rows) {
  return encode({.tensor = matrix,
                 .box = {rows, 64},
                 .swizzle = Swizzle::b128,
                 .l2_promotion = L2Promotion::b256});
}

// The order of the tiles of C (m x n elements), in panels of `group` tile rows.
template <class Config>
GroupedOrder gemm_order(std::int64_t m, std::int64_t n, unsigned group) {
  const auto tiles = [](std::int64_t extent, std::int64_t tile) {
    return static_cast<std::uint64_t>((extent + tile - 1) / tile);
  };
  return GroupedOrder(tiles(m, Config::tile_m), tiles(n, Config::tile_n), group, Config::cluster);
}

// The launch options for `blocks` blocks.
template <class Config>
LaunchOptions gemm_options(unsigned blocks) {
  return {.grid = blocks,
          .block = Config::threads,
          .shared_bytes = sizeof(GemmShared<Config>),
          .cluster = Config::cluster};
}

// The number of blocks for a persistent launch on the current device: the fewest that need no more
// rounds than all blocks that fit, because fewer blocks share the L2 cache and the power. Throws
// Unsupported if the kernel does not fit.
template <class Config, class Epilogue>
unsigned gemm_blocks(const GroupedOrder& order) {
  const unsigned fit = resident_clusters(gemm_kernel<Config, Epilogue, GroupedOrder>,
                                         gemm_options<Config>(Config::cluster));
  if (fit == 0) throw Unsupported("the matrix product's kernel does not fit on this GPU");
  const unsigned rounds = (order.count() + fit - 1) / fit;
  return rounds == 0 ? 0 : (order.count() + rounds - 1) / rounds * Config::cluster;
}

// Enqueues the product of a (m x k) and the transpose of b (n x k) on `stream`; the epilogue stores
// the tiles. m, n and k are at least 1, and the views satisfy the rules of TensorMapOptions.
// `blocks` is a multiple of the cluster: gemm_blocks(), or order.blocks() for one tile per block.
// Throws as encode() and launch() do.
template <class Config, class Epilogue>
void launch_gemm(const TensorView& a, const TensorView& b, const typename Epilogue::Arguments& out,
                 const GroupedOrder& order, unsigned blocks, cudaStream_t stream,
                 const TraceBuffer<Config::traced>& buffer = {}) {
  const auto steps = static_cast<unsigned>((a.extent(1) + Config::tile_k - 1) / Config::tile_k);
  launch(gemm_kernel<Config, Epilogue, GroupedOrder>, gemm_options<Config>(blocks), stream,
         gemm_map(a, Config::tile_m), gemm_map(b, Config::shared_rows), out, order, steps, buffer);
}

}  // namespace ps::kit
