// The sm90 kernels of gemm(), and an estimate of their times that chooses among them. The model
// knows the number of multiprocessors and nothing else of the machine: it only has to rank kernels.
#pragma once

#include <algorithm>
#include <array>
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
  unsigned cluster = 1;
  bool ping_pong = false;
};

inline constexpr std::array gemm_shapes = {
    GemmShape{GemmKernel::sm90_128x256_cluster2, "sm90_128x256_cluster2", 128, 256, 2, false},
    GemmShape{GemmKernel::sm90_128x256, "sm90_128x256", 128, 256, 1, false},
    GemmShape{GemmKernel::sm90_128x192_cluster2, "sm90_128x192_cluster2", 128, 192, 2, false},
    GemmShape{GemmKernel::sm90_128x128_pingpong, "sm90_128x128_pingpong", 128, 128, 2, true},
    GemmShape{GemmKernel::sm90_64x256_pingpong, "sm90_64x256_pingpong", 64, 256, 4, true},
    GemmShape{GemmKernel::sm90_128x128, "sm90_128x128", 128, 128, 1, false},
    GemmShape{GemmKernel::sm90_64x128, "sm90_64x128", 64, 128, 1, false},
    GemmShape{GemmKernel::sm90_64x64, "sm90_64x64", 64, 64, 1, false},
};

constexpr const GemmShape* find_gemm_shape(GemmKernel kernel) {
  for (const GemmShape& shape : gemm_shapes) {
    if (shape.kernel == kernel) return &shape;
  }
  return nullptr;
}

struct GemmSize {
  std::size_t m = 0, n = 0, k = 0;
};

// Rates of one multiprocessor of Hopper, per clock cycle.
inline constexpr double gemm_products = 2048;    // multiply-adds of 16-bit elements
inline constexpr double gemm_l2_bytes = 48;      // from the L2 cache, if all multiprocessors load
inline constexpr double gemm_most_bytes = 64;    // if few do
inline constexpr double gemm_start = 200;        // of an epilogue, and of a turn in ping-pong
inline constexpr double gemm_column_cycles = 4;  // for storing 64 rows of one column

inline constexpr double gemm_unhidden = 0.15;  // of the loads or products that take less time
inline constexpr double gemm_coupling = 0.01;  // for every other block of a cluster

// The cycles of a call on an otherwise idle GPU. Rounds of tiles times the time of a tile: the
// products or the loads, whichever take longer, a part of the others, and the part of the epilogue
// that nothing hides.
constexpr double gemm_cycles(const GemmShape& shape, const GemmSize& size,
                             std::size_t multiprocessors) {
  constexpr std::size_t step_k = 64;
  const std::size_t cluster = shape.cluster;
  const std::size_t rows = ceil_div(size.m, shape.tile_m);
  const std::size_t columns = ceil_div(size.n, shape.tile_n);
  const std::size_t clusters = ceil_div(rows, cluster) * columns;
  // Clusters of four do not fill a GPC whose number of multiprocessors four does not divide.
  const std::size_t unfilled = cluster > 2 ? multiprocessors / 128 : 0;
  const std::size_t fit = std::max<std::size_t>(1, multiprocessors / cluster - unfilled);
  const std::size_t rounds = ceil_div(clusters, fit);
  const auto busy = static_cast<double>(std::min(ceil_div(clusters, rounds), fit) * cluster);

  const std::size_t loaded_rows = shape.tile_m + shape.tile_n / cluster;
  const auto loaded = static_cast<double>(2 * step_k * loaded_rows);  // bytes
  const double rate =
      std::min(gemm_most_bytes, gemm_l2_bytes * static_cast<double>(multiprocessors) / busy);
  const double products = static_cast<double>(step_k) * shape.tile_m * shape.tile_n / gemm_products;
  const double loads = loaded / rate;
  const double step = std::max(products, loads) + gemm_unhidden * std::min(products, loads);
  const double multiply = static_cast<double>(ceil_div(size.k, step_k)) * step *
                          (1 + gemm_coupling * (shape.cluster - 1));
  // Consumers have 64 rows each, and store them at the same time; in ping-pong one stores all rows.
  const double stored = shape.ping_pong ? shape.tile_m / 64 : 1;
  const double epilogue = gemm_start + gemm_column_cycles * stored * shape.tile_n;
  if (!shape.ping_pong) return static_cast<double>(rounds) * (multiply + epilogue);
  const double turn = std::max(multiply + gemm_start, (multiply + epilogue) / 2);
  return multiply + epilogue + static_cast<double>(rounds - 1) * turn;
}

// The kernel with the shortest estimate. The model is not accurate to a few percent: a kernel must
// beat those before it in the list, which suit more sizes, by more than that.
constexpr GemmKernel estimated_gemm(const GemmSize& size, std::size_t multiprocessors) {
  constexpr double margin = 0.97;
  const GemmShape* best = &gemm_shapes.front();
  double fewest = gemm_cycles(*best, size, multiprocessors);
  for (const GemmShape& shape : gemm_shapes) {
    const double cycles = gemm_cycles(shape, size, multiprocessors);
    if (cycles < margin * fewest) fewest = cycles, best = &shape;
  }
  return best->kernel;
}

}  // namespace ps::detail
