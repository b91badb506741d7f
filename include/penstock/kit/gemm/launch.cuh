// Launches a matrix product on views of its operands.
#pragma once

#include <algorithm>
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
  return encode(
      {.tensor = matrix,
       .box = {rows, 64},
       .swizzle = Swizzle::b128,
       // Not b256: rows that begin inside a cache line would take up two such pairs of lines.
       .l2_promotion = L2Promotion::b128});
}

// The arguments of TensorLoader. Boxes are no higher than their matrix: see GridOrder.
template <class Config>
typename TensorLoader<Config>::Arguments gemm_operands(const TensorView& a, const TensorView& b) {
  const auto rows = [](const TensorView& matrix, unsigned most) {
    return std::min<std::int64_t>(matrix.extent(0), most);
  };
  const std::int64_t a_rows = rows(a, Config::tile_m);
  const std::int64_t b_rows =
      Config::cluster == 1 ? rows(b, Config::tile_n) : std::int64_t{Config::shared_rows};
  const auto loaded = static_cast<unsigned>(a_rows + Config::cluster * b_rows);
  return {gemm_map(a, a_rows), gemm_map(b, b_rows),
          loaded * Config::tile_k * static_cast<unsigned>(sizeof(typename Config::Element))};
}

// The launch options for `blocks` blocks. overlaps_previous: see LaunchOptions.
template <class Gemm>
LaunchOptions gemm_options(unsigned blocks, bool overlaps_previous = false) {
  return {.grid = blocks,
          .block = Gemm::Config::threads,
          .shared_bytes = sizeof(typename Gemm::Shared),
          .cluster = Gemm::Config::cluster_blocks,
          .overlaps_previous = overlaps_previous};
}

// The number of clusters that the current device can run at the same time, or blocks if a cluster
// is one block. Throws Unsupported if the kernel does not fit.
template <class Gemm>
static unsigned gemm_resident() {
  const unsigned fit =
      resident_clusters(gemm_kernel<Gemm>, gemm_options<Gemm>(Gemm::Config::cluster_blocks));
  if (fit == 0) throw Unsupported("the matrix product's kernel does not fit on this GPU");
  return fit;
}

// The number of blocks for a persistent launch over a grid of tiles: the fewest that need no more
// rounds than all blocks that fit, because fewer blocks share the L2 cache and the power. Throws as
// gemm_resident() does.
template <class Gemm>
static unsigned gemm_blocks(const GroupedOrder& grid) {
  const unsigned fit = gemm_resident<Gemm>();
  const unsigned rounds = (grid.count() + fit - 1) / fit;
  return rounds == 0 ? 0 : (grid.count() + rounds - 1) / rounds * Gemm::Config::cluster_blocks;
}

// The number of steps along K that each block takes. The last blocks of a split may have steps
// behind the last of K, which add zeros.
template <class Config>
unsigned gemm_steps(std::int64_t k) {
  constexpr std::int64_t columns = Config::tile_k * Config::split;
  return static_cast<unsigned>((k + columns - 1) / columns);
}

// Enqueues a product with the operands of any loader. `steps` and `blocks`: see gemm_steps() and
// gemm_blocks(). With overlaps_previous, the kernel's setup runs while the previous kernel in the
// stream ends. Throws as launch() does.
template <class Gemm>
static void launch_gemm(const typename Gemm::Loader::Arguments& operands, unsigned steps,
                        const typename Gemm::Epilogue::Arguments& out,
                        const typename Gemm::Order& order, unsigned blocks, cudaStream_t stream,
                        const TraceBuffer<Gemm::Config::traced>& buffer = {},
                        bool overlaps_previous = false) {
  launch(gemm_kernel<Gemm>, gemm_options<Gemm>(blocks, overlaps_previous), stream, operands, out,
         order, steps, buffer);
}

// Enqueues the product of a (m x k) and the transpose of b (n x k) on `stream`; the epilogue stores
// the tiles. m, n and k are at least 1, and the views satisfy the rules of TensorMapOptions.
// `blocks` is a multiple of the cluster: gemm_blocks(), or order.grid().blocks() for one tile per
// block. Throws as encode() and launch() do.
template <class Gemm>
static void launch_gemm(const TensorView& a, const TensorView& b,
                        const typename Gemm::Epilogue::Arguments& out,
                        const typename Gemm::Order& order, unsigned blocks, cudaStream_t stream,
                        const TraceBuffer<Gemm::Config::traced>& buffer = {},
                        bool overlaps_previous = false) {
  using Config = typename Gemm::Config;
  launch_gemm<Gemm>(gemm_operands<Config>(a, b), gemm_steps<Config>(a.extent(1)), out, order,
                    blocks, stream, buffer, overlaps_previous);
}

}  // namespace ps::kit
