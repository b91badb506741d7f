// The sm90 kernels of gemm(), and an estimate of their times that chooses among them. The constants
// of the estimate were fitted to measurements on one H200: of all kernels at 33 sizes with few rows
// or small matrices, which tests/ops/gemm_times.h lists, and of sm90_128x256_cluster2 at larger
// ones. See docs/notes/gemm.md.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
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
  unsigned split = 1;     // blocks that share the steps of a tile along K
  bool cp_async = false;  // loads by cp.async instead of tensor copies; the estimate ignores it
  // Whether its times have been measured: only then may the estimate choose it. `penstock tune`
  // may choose every kernel.
  bool measured = true;
};

inline constexpr std::array gemm_shapes = {
    GemmShape{GemmKernel::sm90_128x256_cluster2, "sm90_128x256_cluster2", 128, 256, 2, false},
    GemmShape{GemmKernel::sm90_128x256, "sm90_128x256", 128, 256, 1, false},
    GemmShape{.kernel = GemmKernel::sm90_192x192_cluster2,
              .name = "sm90_192x192_cluster2",
              .tile_m = 192,
              .tile_n = 192,
              .cluster = 2,
              .measured = false},
    GemmShape{.kernel = GemmKernel::sm90_128x224_cluster2,
              .name = "sm90_128x224_cluster2",
              .tile_m = 128,
              .tile_n = 224,
              .cluster = 2,
              .measured = false},
    GemmShape{GemmKernel::sm90_128x192_cluster2, "sm90_128x192_cluster2", 128, 192, 2, false},
    GemmShape{GemmKernel::sm90_128x128_pingpong, "sm90_128x128_pingpong", 128, 128, 2, true},
    GemmShape{GemmKernel::sm90_64x256_pingpong, "sm90_64x256_pingpong", 64, 256, 4, true},
    GemmShape{GemmKernel::sm90_128x128, "sm90_128x128", 128, 128, 1, false},
    GemmShape{.kernel = GemmKernel::sm90_64x192_cluster2,
              .name = "sm90_64x192_cluster2",
              .tile_m = 64,
              .tile_n = 192,
              .cluster = 2,
              .measured = false},
    GemmShape{GemmKernel::sm90_64x128_cluster2, "sm90_64x128_cluster2", 64, 128, 2, false},
    GemmShape{GemmKernel::sm90_64x128, "sm90_64x128", 64, 128, 1, false},
    GemmShape{GemmKernel::sm90_64x64, "sm90_64x64", 64, 64, 1, false},
    GemmShape{GemmKernel::sm90_64x128_split2, "sm90_64x128_split2", 64, 128, 1, false, 2},
    GemmShape{GemmKernel::sm90_64x64_split2, "sm90_64x64_split2", 64, 64, 1, false, 2},
    GemmShape{.kernel = GemmKernel::sm90_128x256_cp_async,
              .name = "sm90_128x256_cp_async",
              .tile_m = 128,
              .tile_n = 256,
              .cp_async = true,
              .measured = false},
    GemmShape{.kernel = GemmKernel::sm90_64x128_cp_async,
              .name = "sm90_64x128_cp_async",
              .tile_m = 64,
              .tile_n = 128,
              .cp_async = true,
              .measured = false},
};

constexpr const GemmShape* find_gemm_shape(GemmKernel kernel) {
  for (const GemmShape& shape : gemm_shapes) {
    if (shape.kernel == kernel) return &shape;
  }
  return nullptr;
}

inline constexpr std::size_t gemm_step_k = 64;  // columns of a and b per step: rows of 128 bytes

constexpr unsigned gemm_consumers(const GemmShape& shape) {
  return shape.ping_pong ? 2 : shape.tile_m / 64;
}

// As many slots as fit into shared memory, at most eight.
constexpr unsigned gemm_slots(const GemmShape& shape) {
  constexpr unsigned room = 226 * 1024, out = 16 * 1024, most = 8;  // `out`: for each consumer
  const unsigned slot = (shape.tile_m + shape.tile_n) * gemm_step_k * 2;
  const unsigned received = shape.tile_m * shape.tile_n * 4 / shape.split * (shape.split - 1);
  return std::min(most, (room - gemm_consumers(shape) * out - received) / slot);
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

// Times are in nanoseconds, and of one multiprocessor if nothing else is said.
inline constexpr double gemm_clock = 1.98;     // cycles per ns
inline constexpr double gemm_products = 2048;  // multiply-adds per cycle
inline constexpr double gemm_shared = 128;     // bytes of shared memory per cycle
inline constexpr double gemm_launch = 4700;    // launch, first loads and last stores
inline constexpr double gemm_epilogue = 2.6;   // storing 128 bytes of a tile
inline constexpr double gemm_exchange = 0.17;  // adding up an element of a tile that is split
inline constexpr double gemm_quartet = 0.04;   // part of a step: waiting in clusters of four
inline constexpr double gemm_transfer = 1.25;  // 128 aligned bytes from the L2 cache
inline constexpr double gemm_crossing = 0.97;  // the part of it that each boundary adds
inline constexpr double gemm_memory = 5600;    // bytes per ns of all together, if few are in flight
inline constexpr double gemm_crowding = 2.7e-8;  // part of the time that a byte in flight adds

// The cost of 128 bytes of a row, compared with aligned ones. They cross a line if they do not
// begin at a multiple of 128 bytes, and touch a fifth sector if they do not begin at a multiple
// of 32.
constexpr double gemm_row_cost(std::size_t alignment) {
  const auto crossing = [&](std::size_t part) {  // share of the rows
    return 1 - static_cast<double>(std::min(alignment, part)) / static_cast<double>(part);
  };
  return 1 + gemm_crossing * (crossing(l2_line) + crossing(l2_sector));
}

// The time of two limits that both matter if they are nearly equal.
inline double gemm_longer(double a, double b) {
  const auto fourth = [](double x) { return x * x * x * x; };
  return std::sqrt(std::sqrt(fourth(a) + fourth(b)));
}

// A step of a tile along K. The tensor cores read each operand from shared memory, where a copy has
// written it: with small tiles these bytes take longer than the products.
inline double gemm_step(const GemmShape& shape, const GemmSize& size) {
  const double products = static_cast<double>(gemm_step_k) * shape.tile_m * shape.tile_n;
  const std::size_t read = shape.tile_m / 64 * (64 + shape.tile_n);  // rows of 128 bytes
  const std::size_t written =
      std::min<std::size_t>(shape.tile_m, size.m) + std::min<std::size_t>(shape.tile_n, size.n);
  const double cycles = gemm_longer(products / gemm_products,
                                    static_cast<double>(l2_line * (read + written)) / gemm_shared);
  return cycles / gemm_clock * (shape.cluster > 2 ? 1 + gemm_quartet : 1);
}

// The estimated time of a call on an otherwise idle GPU: products and epilogues of all rounds of
// tiles, or the loads, whichever take longer. The slots of a ring hold rows that come from memory
// and rows that come from the L2 cache, so the times of both add up.
inline double gemm_time(const GemmShape& shape, const GemmSize& size, std::size_t multiprocessors) {
  const std::size_t blocks = shape.cluster * shape.split;  // of a cluster
  const std::size_t clusters = ceil_div(ceil_div(size.m, shape.tile_m), shape.cluster) *
                               ceil_div(size.n, shape.tile_n);  // of tiles
  const double steps = static_cast<double>(ceil_div(size.k, gemm_step_k)) / shape.split;

  // Clusters of four do not fill GPCs whose number of multiprocessors four does not divide: of the
  // 33 that an H200 has multiprocessors for, 30 run at a time.
  const std::size_t unfilled = blocks > 2 ? multiprocessors / 44 : 0;
  const std::size_t fit = std::max<std::size_t>(1, multiprocessors / blocks - unfilled);
  const auto rounds = static_cast<double>(ceil_div(clusters, fit));
  // In ping-pong, one consumer stores a tile while the other multiplies the next one.
  const double tile = static_cast<double>(shape.tile_m) * shape.tile_n;
  const double epilogue =
      tile / gemm_step_k * gemm_epilogue + (shape.split > 1 ? tile * gemm_exchange : 0);
  const double compute =
      rounds * steps * gemm_step(shape, size) + (shape.ping_pong ? 1 : rounds) * epilogue;

  // Each matrix is read from memory or written to it once. Of b, the clusters at work request all
  // that their slots hold.
  const double bytes = 2.0 * (static_cast<double>(size.m + size.n) * static_cast<double>(size.k) +
                              static_cast<double>(size.m) * static_cast<double>(size.n));
  const std::size_t b = shape.split * std::min<std::size_t>(shape.tile_n, size.n);
  const auto in_flight =
      static_cast<double>(std::min(fit, clusters) * b * gemm_slots(shape) * l2_line);
  const double memory = bytes / gemm_memory * (1 + gemm_crowding * in_flight);

  // All further transfers, in rows of 128 bytes. Every block loads its rows of a, and every
  // cluster, or every block of a split, its rows of b. Tiles at the edges overlap their neighbours:
  // they are smaller only if the matrix is.
  const std::size_t a = blocks * std::min<std::size_t>(shape.tile_m, size.m);
  const double loads =  // of a cluster
      steps * (static_cast<double>(a) * gemm_row_cost(size.a_alignment) +
               static_cast<double>(b) * gemm_row_cost(size.b_alignment));
  const double stores = static_cast<double>(size.m) * static_cast<double>(size.n) / gemm_step_k *
                        gemm_row_cost(size.out_alignment);
  const double rows = static_cast<double>(clusters) * loads + stores;
  const double again = std::max(0.0, rows - bytes / l2_line);
  // Two multiprocessors share a path to the L2 cache. Clusters take both; with fewer single blocks
  // than paths, each block has its own.
  const double paths = std::min(static_cast<double>(multiprocessors) / 2,
                                static_cast<double>(std::min(fit, clusters) * ceil_div(blocks, 2)));
  const double transfer = gemm_transfer * again / (2 * paths);

  return gemm_launch + gemm_longer(compute, memory + transfer);
}

// The kernel with the shortest estimate, among those that have been measured.
inline GemmKernel estimated_gemm(const GemmSize& size, std::size_t multiprocessors) {
  const GemmShape* best = nullptr;
  double shortest = 0;
  for (const GemmShape& shape : gemm_shapes) {
    if (!shape.measured) continue;
    const double time = gemm_time(shape, size, multiprocessors);
    if (best == nullptr || time < shortest) shortest = time, best = &shape;
  }
  return best->kernel;
}

}  // namespace ps::detail
