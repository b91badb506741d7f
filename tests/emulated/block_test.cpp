// The threads of emulated blocks: they wait for each other, and mistakes of kernels show.
#include "emulated/block.h"

#include <cuda_bf16.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "emulated/cuda.h"
#include "penstock/kit/cp_async.cuh"
#include "penstock/kit/matrix.cuh"
#include "penstock/kit/mma.cuh"

namespace ps::emulated {
namespace {

TEST(EmulatedBlock, EveryThreadOfEveryBlockRunsOnce) {
  std::vector<int> runs(std::size_t{2} * 3 * 4 * 40);
  run_grid({2, 3, 4}, 40, [&] {
    ++runs[((blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x) * blockDim.x +
           threadIdx.x];
  });
  EXPECT_EQ(runs, std::vector<int>(runs.size(), 1));
}

TEST(EmulatedBlock, ThreadsWaitForEachOther) {
  constexpr unsigned threads = 96;
  std::array<unsigned, threads> values{};
  unsigned wrong = 0;
  run_grid(1, threads, [&] {
    if (threadIdx.x == threads - 1) return;  // the others do not wait for it
    for (unsigned round = 1; round < 5; ++round) {
      values[threadIdx.x] = round * threadIdx.x;
      __syncthreads();
      const unsigned other = (threadIdx.x + 31) % (threads - 1);
      wrong += values[other] != round * other;
      __syncthreads();
    }
  });
  EXPECT_EQ(wrong, 0U);
}

TEST(EmulatedBlock, LanesShowTheirValues) {
  unsigned wrong = 0;
  run_grid(1, 64, [&] {
    const unsigned lane = threadIdx.x % 32, own = threadIdx.x * 3;
    wrong += __shfl_sync(~0U, own, 5) != (threadIdx.x - lane + 5) * 3;
    wrong += __shfl_xor_sync(~0U, own, 16) != (threadIdx.x ^ 16) * 3;
    wrong += __shfl_up_sync(~0U, own, 2) != (lane < 2 ? own : own - 6);
    wrong += __reduce_max_sync(~0U, own) != (threadIdx.x - lane + 31) * 3;
    wrong += __any_sync(~0U, threadIdx.x == 40) != (threadIdx.x >= 32);
  });
  EXPECT_EQ(wrong, 0U);
}

TEST(EmulatedBlock, CopiesArriveWhenTheirThreadWaits) {
  alignas(16) std::array<std::uint32_t, 4> from{1, 2, 3, 4}, to{9, 9, 9, 9};
  std::uint32_t before = 0;
  run_grid(1, 1, [&] {
    kit::cp_async<16>(to.data(), from.data(), 8);
    kit::cp_async_commit();
    before = to[0];
    kit::cp_async_wait<0>();
  });
  EXPECT_EQ(before, 9U);
  EXPECT_EQ(to, (std::array<std::uint32_t, 4>{1, 2, 0, 0}));
}

// D = A B, with whole numbers that bf16 holds.
TEST(EmulatedBlock, MultipliesMatrices) {
  alignas(16) __nv_bfloat16 a[16][16], b[16][8];
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 16; ++j)
      a[i][j] = __float2bfloat16(static_cast<float>((i * 5 + j * 3) % 13));
    for (int j = 0; j < 8; ++j) b[i][j] = __float2bfloat16(static_cast<float>((i * 7 + j) % 11));
  }
  float d[16][8];
  run_grid(1, 32, [&] {
    const unsigned lane = threadIdx.x;
    std::uint32_t of_a[4], of_b[2];
    kit::load_matrices(of_a, &a[lane % 16][lane / 16 * 8]);
    kit::load_matrices<true>(of_b, &b[lane % 16][0]);
    float sums[4] = {};
    kit::mma<__nv_bfloat16>(sums, of_a, of_b);
    for (unsigned i = 0; i < 4; ++i) d[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2] = sums[i];
  });
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 8; ++j) {
      float exact = 0;
      for (int k = 0; k < 16; ++k) exact += __bfloat162float(a[i][k]) * __bfloat162float(b[k][j]);
      EXPECT_EQ(d[i][j], exact) << i << ", " << j;
    }
  }
}

TEST(EmulatedBlockDeathTest, ThreadsThatWaitForEverEndTheProgram) {
  // A shuffle of all lanes in a branch that only one takes.
  EXPECT_DEATH(run_grid(1, 32,
                        [] {
                          if (threadIdx.x == 3) __shfl_sync(~0U, 1, 0);
                        }),
               "thread 3 at __shfl_sync");
  // A barrier that half of the threads reach, while the rest wait for them.
  EXPECT_DEATH(run_grid(1, 64,
                        [] {
                          if (threadIdx.x < 32) __syncthreads();
                          Block::current().meet(Block::current().named(1), 64, "the rest");
                        }),
               "thread 0 at __syncthreads\n(.*\n)*  thread 40 at the rest");
}

}  // namespace
}  // namespace ps::emulated
