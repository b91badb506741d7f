// Exercise 6: tiles of a matrix are loaded by a tensor map, and every element is added to its four
// neighbours. At the edges of a tile the neighbours belong to other tiles: they must be loaded too.
#include <cmath>

#include "gpu/exercises/6_halo.h"
#include "gpu/lesson/lesson.cuh"
#include "penstock/kit/fence.cuh"
#include "penstock/kit/launch.cuh"
#include "penstock/kit/tma.cuh"

namespace ps::lesson {
namespace {

using namespace kit;

constexpr int tile_rows = 16, tile_columns = 32;

// A row above and below, and a column left and right: four of them, because a row of a box is a
// multiple of 16 bytes long.
constexpr int halo_rows = 1, halo_columns = 4;
constexpr int box_rows = tile_rows + 2 * halo_rows, box_columns = tile_columns + 2 * halo_columns;

__global__ void sums(const __grid_constant__ TensorMap map, float* out, int rows, int columns) {
  __shared__ alignas(128) float box[box_rows][box_columns];
  __shared__ PatientBarrier full;
  const int first_row = static_cast<int>(blockIdx.y) * tile_rows;
  const int first_column = static_cast<int>(blockIdx.x) * tile_columns;
  if (threadIdx.x == 0) {
    full.init(1);
    fence_barrier_init();
    full.arrive_expect(sizeof(box));
    // It may begin before the matrix does: zeros come from there.
    tensor_load(box, map, full, evict_normal(), first_row - halo_rows, first_column - halo_columns);
  }
  __syncthreads();
  full.wait(0);

  // Elements outside the box are NaN.
  const auto at = [&](int row, int column) {
    const bool inside = row >= 0 && row < box_rows && column >= 0 && column < box_columns;
    return inside ? box[row][column] : NAN;
  };
  for (int i = static_cast<int>(threadIdx.x); i < tile_rows * tile_columns; i += threads) {
    const int row = i / tile_columns, column = i % tile_columns;
    if (first_row + row >= rows || first_column + column >= columns) continue;
    const int r = row + halo_rows, c = column + halo_columns;  // where it lies in the box
    out[(first_row + row) * columns + first_column + column] =
        at(r, c) + at(r - 1, c) + at(r + 1, c) + at(r, c - 1) + at(r, c + 1);
  }
}

}  // namespace

void add_neighbours(const TensorView& in, const TensorView& out, cudaStream_t stream) {
  const TensorMap map = encode({.tensor = in, .box = {box_rows, box_columns}});
  const int rows = static_cast<int>(in.extent(0)), columns = static_cast<int>(in.extent(1));
  const auto tiles = [](int extent, int tile) {
    return static_cast<unsigned>((extent + tile - 1) / tile);
  };
  launch(sums,
         {.grid = dim3(tiles(columns, tile_columns), tiles(rows, tile_rows)), .block = threads},
         stream, map, static_cast<float*>(out.data()), rows, columns);
}

}  // namespace ps::lesson
