// f on a tile in shared memory, in place.
#pragma once

#include "copy/support/f.cuh"

namespace ladder::copy {

// Thread `thread` of `threads` does its share of a tile of `vectors`: four vectors at a time, which
// are 16 independent chains, as long as every thread has so many, and then one.
template <unsigned at_once = 4>
__device__ __forceinline__ void f_of_tile(float4* tile, unsigned vectors, int rounds,
                                          unsigned thread, unsigned threads) {
  unsigned done = 0;
  for (; done + at_once * threads <= vectors; done += at_once * threads) {
    float4* const mine = tile + done + thread;
    float4 v[at_once];
#pragma unroll
    for (unsigned k = 0; k < at_once; ++k) v[k] = mine[k * threads];
    f(v, rounds);
#pragma unroll
    for (unsigned k = 0; k < at_once; ++k) mine[k * threads] = v[k];
  }
  for (unsigned i = done + thread; i < vectors; i += threads) tile[i] = f(tile[i], rounds);
}

}  // namespace ladder::copy
