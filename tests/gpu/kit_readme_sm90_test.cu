// The kernel that README.md shows, which is what stands between the marks, and a test of it.
//
// [readme]
#include <penstock/kit/ring.h>
#include <penstock/kit/barrier.cuh>
#include <penstock/kit/bulk.cuh>
#include <penstock/kit/roles.cuh>
// [/readme]

#include <vector>

#include "gpu/kit_test.h"

namespace {

// [readme]
using namespace ps::kit;

constexpr unsigned depth = 4, tile = 2048;  // a ring of four slots of 2048 floats
using Team = Roles<1, 4>;                   // one warp loads, four warps compute

// out = factor * in, for `tiles` tiles.
__global__ void __launch_bounds__(Team::threads)
    scale(const float* in, float* out, std::size_t tiles, float factor) {
  __shared__ __align__(128) float slots[depth][tile];
  __shared__ Ring<Barrier, depth> ring;
  if (threadIdx.x == 0) {
    ring.init(1, Team::compute_threads);  // arrivals that fill a slot, and that free it
    fence_barrier_init();
  }
  __syncthreads();

  if (Team::role() == Role::loader) {
    if (!elect()) return;
    Producer producer(ring);
    for (std::size_t t = blockIdx.x; t < tiles; t += gridDim.x) {
      const unsigned slot = producer.acquire(sizeof(slots[0]));  // waits until it is free
      bulk_load(slots[slot], in + t * tile, sizeof(slots[0]), producer.full(slot));
    }
  } else {
    Consumer consumer(ring);
    for (std::size_t t = blockIdx.x; t < tiles; t += gridDim.x) {
      const unsigned slot = consumer.wait();  // until its bytes have arrived
      for (unsigned i = Team::index(Role::compute); i < tile; i += Team::compute_threads) {
        out[t * tile + i] = factor * slots[slot][i];
      }
      consumer.release();
    }
  }
}
// [/readme]

class KitReadmeGpu : public ps::test::KitSm90Test {};

TEST_F(KitReadmeGpu, ScalesEveryTile) {
  for (const std::size_t tiles : {1, 3, 132, 1000}) {
    std::vector<float> values(tiles * tile);
    for (float& value : values) value = static_cast<float>(from(-1000, 1000));
    const ps::test::DeviceArray<float> in(values), out(values.size());
    run(scale, {.grid = 132, .block = Team::threads}, in.data(), out.data(), tiles, 0.5F);
    EXPECT_TRUE(ps::test::same(out.values(), [&](std::size_t i) { return 0.5F * values[i]; }));
  }
}

}  // namespace
