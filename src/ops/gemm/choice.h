// The sm90 kernels of gemm(), and an estimate of their times that chooses among them. The constants
// of the estimate were fitted to measurements on one H200: of the kernels without a split at 46
// sizes, and then, only gemm_alone and gemm_exchange, of all kernels at 33 sizes with few rows or
// small matrices. gemm_memory is the rate of a copy.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <string_view>

#include "penstock/base/checked.h"
#include "penstock/ops/gemm.h"

namespace ps::detail {

// How a kernel divides its work.
struct GemmShape {
  GemmKernel kernel = GemmKernel::best;
  std::string_view name;
  unsigned tile_m = 0, tile_n = 0;
  unsigned cluster = 1;  // blocks that share what they load of b
  bool ping_pong = false;
  unsigned split = 1;  // blocks that share the steps of a tile along K
};

inline constexpr std::array gemm_shapes = {
    GemmShape{GemmKernel::sm90_128x256_cluster2, "sm90_128x256_cluster2", 128, 256, 2, false},
    GemmShape{GemmKernel::sm90_128x256, "sm90_128x256", 128, 256, 1, false},
    GemmShape{GemmKernel::sm90_128x192_cluster2, "sm90_128x192_cluster2", 128, 192, 2, false},
    GemmShape{GemmKernel::sm90_128x128_pingpong, "sm90_128x128_pingpong", 128, 128, 2, true},
    GemmShape{GemmKernel::sm90_64x256_pingpong, "sm90_64x256_pingpong", 64, 256, 4, true},
    GemmShape{GemmKernel::sm90_128x128, "sm90_128x128", 128, 128, 1, false},
    GemmShape{GemmKernel::sm90_64x128_cluster2, "sm90_64x128_cluster2", 64, 128, 2, false},
    GemmShape{GemmKernel::sm90_64x128, "sm90_64x128", 64, 128, 1, false},
    GemmShape{GemmKernel::sm90_64x64, "sm90_64x64", 64, 64, 1, false},
    GemmShape{GemmKernel::sm90_64x128_split2, "sm90_64x128_split2", 64, 128, 1, false, 2},
    GemmShape{GemmKernel::sm90_64x64_split2, "sm90_64x64_split2", 64, 64, 1, false, 2},
};

constexpr const GemmShape* find_gemm_shape(GemmKernel kernel) {
  for (const GemmShape& shape : gemm_shapes) {
    if (shape.kernel == kernel) return &shape;
  }
  return nullptr;
}

inline constexpr std::size_t l2_line = 128, l2_sector = 32;  // bytes

// The largest power of two, at most l2_line, that divides `bits`: an address or a pitch in bytes,
// or both combined by |.
constexpr std::size_t gemm_alignment(std::size_t bits) {
  return std::size_t{1} << std::countr_zero(bits | l2_line);
}

// The size of a product, and the alignment of the rows of its matrices in bytes. By default rows
// have no gaps and the first one is aligned.
struct GemmSize {
  std::size_t m = 0, n = 0, k = 0;
  std::size_t a_alignment = gemm_alignment(2 * k);
  std::size_t b_alignment = gemm_alignment(2 * k);
  std::size_t out_alignment = gemm_alignment(2 * n);
};

// Times of one multiprocessor in nanoseconds; those of transfers are for all of them at work.
inline constexpr double gemm_launch = 5400;    // launch, first loads and last stores
inline constexpr double gemm_products = 4050;  // multiply-adds per ns: 2048 a cycle at 1.98 GHz
inline constexpr double gemm_coupling = 0.09;  // slower products, per additional block of a cluster
inline constexpr double gemm_transfer = 1.5;   // 128 aligned bytes from or to the L2 cache
inline constexpr double gemm_alone = 1.2;      // the same while few multiprocessors are at work
inline constexpr double gemm_memory = 4200;    // bytes per ns from and to memory, of all together
inline constexpr double gemm_exchange = 1600;  // adding up the sums of the blocks of a split
inline constexpr double gemm_crossing = 0.75;  // the part of it that each boundary adds
inline constexpr double gemm_unhidden = 0.33;  // part of the shorter time that adds to the longer

// The cost of 128 bytes of a row, compared with aligned ones. They cross a line if they do not
// begin at a multiple of 128 bytes, and touch a fifth sector if they do not begin at a multiple
// of 32.
constexpr double gemm_row_cost(std::size_t alignment) {
  const auto crossing = [&](std::size_t part) {  // share of the rows
    return 1 - static_cast<double>(std::min(alignment, part)) / static_cast<double>(part);
  };
  return 1 + gemm_crossing * (crossing(l2_line) + crossing(l2_sector));
}

// The estimated time of a call on an otherwise idle GPU, in nanoseconds: products and epilogues of
// all rounds of tiles, or all transfers from and to the L2 cache, whichever take longer, and a part
// of the other. Reading and writing each matrix once in memory is a lower limit of the longer one.
constexpr double gemm_time(const GemmShape& shape, const GemmSize& size,
                           std::size_t multiprocessors) {
  constexpr std::size_t step_k = 64;  // elements of one row of a box, 128 bytes
  const std::size_t blocks = shape.cluster * shape.split;  // of a cluster
  const std::size_t clusters = ceil_div(ceil_div(size.m, shape.tile_m), shape.cluster) *
                               ceil_div(size.n, shape.tile_n);  // of tiles
  const double steps = static_cast<double>(ceil_div(size.k, step_k)) / shape.split;

  // Clusters of four do not fill GPCs whose number of multiprocessors four does not divide: of the
  // 33 that an H200 has multiprocessors for, 30 run at a time.
  const std::size_t unfilled = blocks > 2 ? multiprocessors / 44 : 0;
  const std::size_t fit = std::max<std::size_t>(1, multiprocessors / blocks - unfilled);
  const auto rounds = static_cast<double>(ceil_div(clusters, fit));
  const double tile = static_cast<double>(shape.tile_m) * shape.tile_n;
  const double multiply =
      steps * step_k * tile / gemm_products * (1 + gemm_coupling * (shape.cluster - 1));
  // The epilogue takes as long as the stores of the tile. In ping-pong, one consumer stores a tile
  // while the other multiplies the next one.
  const double epilogue = tile / step_k * gemm_transfer + (shape.split > 1 ? gemm_exchange : 0);
  const double compute = rounds * multiply + (shape.ping_pong ? 1 : rounds) * epilogue;

  // Rows of 128 bytes. Every block loads its rows of a, and every cluster, or every block of a
  // split, its rows of b. Tiles at the edges overlap their neighbours: they are smaller only if the
  // matrix is.
  const std::size_t a = blocks * std::min<std::size_t>(shape.tile_m, size.m);
  const std::size_t b = shape.split * std::min<std::size_t>(shape.tile_n, size.n);
  const double loads =  // of a cluster
      steps * (static_cast<double>(a) * gemm_row_cost(size.a_alignment) +
               static_cast<double>(b) * gemm_row_cost(size.b_alignment));
  const double out = static_cast<double>(size.m) * static_cast<double>(size.n) / step_k;
  const double stores = out * gemm_row_cost(size.out_alignment);
  const double together = gemm_transfer * (static_cast<double>(clusters) * loads + stores) /
                          static_cast<double>(multiprocessors);
  const double alone = gemm_alone * rounds * loads / static_cast<double>(blocks);
  const double transfer = std::max(together, alone);

  const double bytes = 2.0 * (static_cast<double>(size.m + size.n) * static_cast<double>(size.k) +
                              static_cast<double>(size.m) * static_cast<double>(size.n));
  return gemm_launch + std::max({compute, transfer, bytes / gemm_memory}) +
         gemm_unhidden * std::min(compute, transfer);
}

// The kernel with the shortest estimate.
constexpr GemmKernel estimated_gemm(const GemmSize& size, std::size_t multiprocessors) {
  const GemmShape* best = nullptr;
  double shortest = 0;
  for (const GemmShape& shape : gemm_shapes) {
    const double time = gemm_time(shape, size, multiprocessors);
    if (best == nullptr || time < shortest) shortest = time, best = &shape;
  }
  return best->kernel;
}

}  // namespace ps::detail
