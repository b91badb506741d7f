// Exercise 4: a matrix is transposed, tile by tile. The result is right, but each warp's store is
// scattered over 32 lines of memory where it could fill one.
#include "gpu/exercises/4_coalesced_store.h"

namespace ps::lesson {
namespace {

__global__ void transposed(const float* in, Counted out, unsigned width) {
  __shared__ float tile[side][side + 1];  // one more column: no bank conflicts
  const unsigned row = blockIdx.y * side, column = blockIdx.x * side;
  const unsigned x = threadIdx.x, y = threadIdx.y;  // a warp has one y, and x from 0 to 31
  tile[y][x] = in[(row + y) * width + column + x];
  __syncthreads();
  // GAP: neighbouring threads write to different rows. Let them write to neighbouring addresses.
  out.store((column + x) * width + row + y, tile[y][x]);
}

}  // namespace

void transpose(const float* in, const Counted& out, unsigned tiles, cudaStream_t stream) {
  transposed<<<dim3(tiles, tiles), dim3(side, side), 0, stream>>>(in, out, tiles * side);
}

}  // namespace ps::lesson
