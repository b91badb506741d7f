// Exercise 4: a matrix is transposed, tile by tile. Shared memory turns the tile, so that a warp
// reads one line of memory and fills one.
#include "gpu/exercises/4_coalesced_store.h"

namespace ps::lesson {
namespace {

__global__ void transposed(const float* in, Counted out, unsigned width) {
  __shared__ float tile[side][side + 1];  // one more column: no bank conflicts
  const unsigned row = blockIdx.y * side, column = blockIdx.x * side;
  const unsigned x = threadIdx.x, y = threadIdx.y;  // a warp has one y, and x from 0 to 31
  tile[y][x] = in[(row + y) * width + column + x];
  __syncthreads();
  // Neighbours write next to each other, and take from the tile what belongs there.
  out.store((column + y) * width + row + x, tile[x][y]);
}

}  // namespace

void transpose(const float* in, const Counted& out, unsigned tiles, cudaStream_t stream) {
  transposed<<<dim3(tiles, tiles), dim3(side, side), 0, stream>>>(in, out, tiles * side);
}

}  // namespace ps::lesson
