// Launching, and what kernels of one stream and blocks of one grid wait for.
#include "penstock/kit/launch.cuh"

#include <cstdint>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "gpu/kit_test.h"
#include "penstock/kit/grid.cuh"

namespace {

using ps::test::DeviceArray;
using ps::test::same;

class KitLaunchGpu : public ps::test::KitTest {};

__global__ void use_shared(unsigned words, unsigned* out) {
  extern __shared__ unsigned shared[];
  for (unsigned i = threadIdx.x; i < words; i += blockDim.x) shared[i] = i * 3;
  __syncthreads();
  for (unsigned i = threadIdx.x; i < words; i += blockDim.x) {
    out[blockIdx.x * words + i] = shared[words - 1 - i];
  }
}

TEST_F(KitLaunchGpu, GivesSharedMemory) {
  for (const unsigned bytes : {1024U, 48U * 1024, 48U * 1024 + 4, 160U * 1024}) {
    SCOPED_TRACE(testing::Message() << bytes << " bytes");
    const unsigned words = bytes / 4;
    const DeviceArray<unsigned> out(3 * words);
    run(use_shared, {.grid = 3, .block = 128, .shared_bytes = bytes}, words, out.data());
    EXPECT_TRUE(same(out.values(), [&](std::size_t i) {
      return static_cast<unsigned>(words - 1 - i % words) * 3;
    }));
  }
}

TEST_F(KitLaunchGpu, GivesSharedMemoryAgainInAnyOrder) {
  constexpr unsigned large = 160 * 1024, small = 40 * 1024;
  const DeviceArray<unsigned> out(large / 4);
  for (const unsigned bytes : {large, small, large, large, 100U * 1024, small, large}) {
    SCOPED_TRACE(testing::Message() << bytes << " bytes");
    const unsigned words = bytes / 4;
    run(use_shared, {.grid = 1, .block = 128, .shared_bytes = bytes}, words, out.data());
    const auto values = out.values();
    for (unsigned i = 0; i < words; ++i) ASSERT_EQ(values[i], (words - 1 - i) * 3) << i;
  }
}

__global__ void use_shared_too(unsigned words, unsigned* out) {
  extern __shared__ unsigned shared[];
  if (threadIdx.x == 0) shared[words - 1] = words;
  __syncthreads();
  if (threadIdx.x == 1) out[blockIdx.x] = shared[words - 1];
}

// Each thread remembers what it has set; all of them set the same kernel's attributes.
TEST_F(KitLaunchGpu, GivesSharedMemoryToLaunchesOfManyThreads) {
  constexpr unsigned threads = 4, launches = 50;
  const DeviceArray<unsigned> out(threads * launches);
  const auto words_of = [](unsigned i) { return (33 + i % 120) * 256; };
  std::vector<std::thread> running;
  for (unsigned t = 0; t < threads; ++t) {
    running.emplace_back([&, t] {
      for (unsigned i = t * launches; i < (t + 1) * launches; ++i) {
        EXPECT_NO_THROW(ps::kit::launch(use_shared_too,
                                        {.block = 64, .shared_bytes = std::size_t{words_of(i)} * 4},
                                        stream(), words_of(i), out.data() + i));
      }
    });
  }
  for (std::thread& each : running) each.join();
  finish();
  EXPECT_TRUE(
      same(out.values(), [&](std::size_t i) { return words_of(static_cast<unsigned>(i)); }));
}

TEST_F(KitLaunchGpu, KnowsHowManyBlocksFitToo) {
  int processors = 0;
  ASSERT_EQ(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0), cudaSuccess);
  const auto fit = [&](const ps::kit::LaunchOptions& options) {
    const unsigned first = ps::kit::resident_clusters(use_shared, options);
    EXPECT_EQ(ps::kit::resident_clusters(use_shared, options), first);
    return first;
  };
  const auto all = static_cast<unsigned>(processors);
  EXPECT_EQ(fit({.block = 128, .shared_bytes = 120 * 1024}), all);
  EXPECT_GE(fit({.block = 128, .shared_bytes = 40 * 1024}), all * 2);
  EXPECT_EQ(fit({.block = 1024, .shared_bytes = 1024}), fit({.block = dim3(32, 8, 4)}));
  int major = 0;
  ASSERT_EQ(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), cudaSuccess);
  if (major < 9) return;
  const unsigned pairs = fit({.block = 1024, .shared_bytes = 120 * 1024, .cluster = 2});
  EXPECT_GT(pairs, 0U);
  EXPECT_LE(pairs, all / 2);
  EXPECT_LT(fit({.block = 1024, .shared_bytes = 120 * 1024, .cluster = 16}), pairs);
}

TEST_F(KitLaunchGpu, LoadsKernelsWithoutRunningThem) {
  const DeviceArray<unsigned> out(256);
  const std::vector<unsigned> before = out.values();
  {
    const ps::kit::LoadKernels loads;
    run(use_shared, {.block = 128, .shared_bytes = 1024}, 256U, out.data());
    {
      const ps::kit::LoadKernels more;
    }
    run(use_shared, {.block = 128, .shared_bytes = 1024, .overlaps_previous = true}, 256U,
        out.data());
    std::thread([&] {
      EXPECT_EQ(ps::kit::detail::loading_only(), 0U) << "other threads launch";
    }).join();
  }
  EXPECT_EQ(out.values(), before);
  run(use_shared, {.block = 128, .shared_bytes = 1024}, 256U, out.data());
  EXPECT_TRUE(same(out.values(), [](std::size_t i) { return static_cast<unsigned>(255 - i) * 3; }));
}

TEST_F(KitLaunchGpu, SaysWhyItIsRefused) {
  const DeviceArray<unsigned> out(1);
  const auto refused = [&](const ps::kit::LaunchOptions& options, const char* call) {
    try {
      ps::kit::launch(use_shared, options, stream(), 1U, out.data());
      ADD_FAILURE() << "was launched";
    } catch (const ps::DeviceError& error) {
      EXPECT_NE(std::string(error.what()).find(call), std::string::npos) << error.what();
    }
    EXPECT_TRUE(ps::test::no_error_left());
  };
  refused({.block = 2048}, "2048 threads");
  // The second time the kernel's attributes are known.
  for (int time = 0; time < 2; ++time) {
    refused({.block = 32, .shared_bytes = 1 << 20}, "1048576 bytes of shared memory");
  }
  // Larger than any GPU can hold at once.
  refused({.grid = 1 << 20, .block = 1024, .all_blocks_at_once = true}, "1048576 blocks");
}

// Every block writes a word; behind the barrier every thread reads another block's.
__global__ void meet(std::uint32_t* word, unsigned* slots, unsigned rounds, unsigned* errors) {
  const ps::kit::GridBarrier barrier(word);
  const unsigned blocks = gridDim.x * gridDim.y;
  const unsigned block = blockIdx.y * gridDim.x + blockIdx.x;
  unsigned wrong = 0;
  for (unsigned round = 0; round < rounds; ++round) {
    ps::test::loiter(round + block);
    // By a thread that is not the one that arrives.
    if (threadIdx.x == blockDim.x - 1) slots[block] = round * blocks + block;
    barrier.wait();
    for (unsigned i = threadIdx.x; i < blocks; i += blockDim.x) {
      wrong += slots[i] != round * blocks + i;
    }
    barrier.wait();
  }
  barrier.wait();  // an odd number of them: the next launch finds the word turned over
  atomicAdd(errors + block, wrong);
}

TEST_F(KitLaunchGpu, GridBarrierHoldsAllBlocks) {
  int each = 0, multiprocessors = 0;
  ASSERT_EQ(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, meet, 128, 0), cudaSuccess);
  ASSERT_EQ(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0),
            cudaSuccess);
  const auto many = static_cast<unsigned>(each * multiprocessors);
  const DeviceArray<std::uint32_t> word(std::vector<std::uint32_t>{0});
  for (const dim3 grid : {dim3(1), dim3(2), dim3(3, 5), dim3(many), dim3(many / 2, 2)}) {
    SCOPED_TRACE(testing::Message() << grid.x << " by " << grid.y << " blocks");
    const unsigned blocks = grid.x * grid.y;
    const DeviceArray<unsigned> slots(blocks), errors(std::vector<unsigned>(blocks, 0));
    run(meet, {.grid = grid, .block = 128, .all_blocks_at_once = true}, word.data(), slots.data(),
        25U, errors.data());
    EXPECT_TRUE(same(errors.values(), [](std::size_t) { return 0U; }));
  }
}

// One barrier alone, in a kernel of its own: the word then differs from launch to launch.
__global__ void meet_once(std::uint32_t* word, unsigned* count, unsigned* seen) {
  if (threadIdx.x == 0) atomicAdd(count, 1U);
  ps::kit::GridBarrier(word).wait();
  if (threadIdx.x == 0) seen[blockIdx.x] = *static_cast<volatile unsigned*>(count);
}

TEST_F(KitLaunchGpu, GridBarrierServesLaterLaunches) {
  constexpr unsigned blocks = 64, launches = 7;
  const DeviceArray<std::uint32_t> word(std::vector<std::uint32_t>{0});
  const DeviceArray<unsigned> count(std::vector<unsigned>{0}), seen(blocks * launches);
  for (unsigned i = 0; i < launches; ++i) {
    ps::kit::launch(meet_once, {.grid = blocks, .block = 64, .all_blocks_at_once = true}, stream(),
                    word.data(), count.data(), seen.data() + i * blocks);
  }
  finish();
  EXPECT_TRUE(same(seen.values(),
                   [](std::size_t i) { return static_cast<unsigned>((i / blocks + 1) * blocks); }));
}

// Adds one, late and after the next kernel was allowed to start.
__global__ void add_one(const unsigned* in, unsigned* out, unsigned count) {
  ps::kit::let_next_start();
  ps::kit::wait_for_previous();
  ps::test::loiter(blockIdx.x);
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (threadIdx.x < 32 && blockIdx.x % 7 == 0) __nanosleep(20000);
  if (i < count) out[i] = in[i] + 1;
}

TEST_F(KitLaunchGpu, KernelsThatOverlapKeepTheirOrder) {
  constexpr unsigned count = 100'000, kernels = 201;
  auto values = noise(count);
  const DeviceArray<unsigned> even(values), odd(count);
  for (unsigned i = 0; i < kernels; ++i) {
    const auto& from = i % 2 == 0 ? even : odd;
    const auto& to = i % 2 == 0 ? odd : even;
    // Now and then a plain launch among them.
    ps::kit::launch(add_one,
                    {.grid = (count + 255) / 256, .block = 256, .overlaps_previous = i % 5 != 3},
                    stream(), from.data(), to.data(), count);
  }
  finish();
  EXPECT_TRUE(same(odd.values(), [&](std::size_t i) { return values[i] + kernels; }));
}

__global__ void say_whether_it_waits(unsigned* out) {
#if __CUDA_ARCH__ >= 900
  *out = 1;
#else
  *out = 0;
#endif
}

// Code for less than 9.0 has no wait; on a later GPU it may run, too, compiled from PTX.
TEST_F(KitLaunchGpu, KernelsStartEarlyOnlyIfTheirCodeWaits) {
  const DeviceArray<unsigned> waits(1);
  run(say_whether_it_waits, {.overlaps_previous = true}, waits.data());
  const auto* const kernel = reinterpret_cast<const void*>(say_whether_it_waits);
  const bool should = waits.values()[0] == 1;
  EXPECT_EQ(ps::kit::detail::may_overlap(kernel), should);
  EXPECT_EQ(ps::kit::detail::may_overlap(kernel), should) << "asked again";
}

// Says when it began and when the kernel before it was seen to have ended.
__global__ void slow(volatile unsigned* done) {
  ps::kit::let_next_start();
  for (unsigned i = 0; i < 20; ++i) __nanosleep(1'000'000);
  *done = 1;
}
__global__ void early(volatile unsigned* done, unsigned* out) {
  out[0] = *done;
  ps::kit::wait_for_previous();
  out[1] = *done;
}

TEST_F(KitLaunchGpu, NextKernelStartsEarlyAndSeesAllAfterTheWait) {
  int major = 0;
  ASSERT_EQ(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), cudaSuccess);
  if (major < 9) GTEST_SKIP() << "needs compute capability 9";
  const DeviceArray<unsigned> done(std::vector<unsigned>{0}), out(2);
  // Once before, so that loading the code does not come between the two.
  ps::kit::launch(early, {}, stream(), done.data(), out.data());
  finish();
  ps::kit::launch(slow, {}, stream(), done.data());
  ps::kit::launch(early, {.overlaps_previous = true}, stream(), done.data(), out.data());
  finish();
  const auto seen = out.values();
  EXPECT_EQ(seen[1], 1U) << "the kernel before had not ended";
  // That it starts early is a promise of speed alone, which a busy or instrumented GPU need not
  // keep.
  if (seen[0] != 0) std::puts("the second kernel did not start before the first had ended");
}

}  // namespace
