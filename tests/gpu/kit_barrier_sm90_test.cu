#include "penstock/kit/barrier.cuh"

#include "gpu/kit_test.h"
#include "penstock/kit/bulk.cuh"
#include "penstock/kit/cp_async.cuh"
#include "penstock/kit/fence.cuh"

namespace {

using ps::kit::Barrier;
using ps::test::DeviceArray;
using ps::test::Patient;
using ps::test::same;

class KitBarrierGpu : public ps::test::KitSm90Test {};

// What one thread sees of a barrier as others arrive, a bit each; 1 everywhere is right.
__global__ void look_at_phases(unsigned* out) {
  __shared__ Patient<Barrier> barrier;
  const bool first = threadIdx.x == 0;
  if (first) {
    barrier.init(33);
    ps::kit::fence_barrier_init();
    out[0] = barrier.try_wait(1);   // the phase before the first has completed
    out[1] = !barrier.try_wait(0);  // the first has not
  }
  __syncthreads();
  for (unsigned round = 0; round < 3; ++round) {
    barrier.arrive();  // 32 of 33
    __syncthreads();
    if (first) out[2 + 3 * round] = !barrier.try_wait(round % 2);
    __syncthreads();
    if (first) {
      barrier.arrive();
      barrier.wait(round % 2);
      out[3 + 3 * round] = barrier.try_wait(round % 2);
      out[4 + 3 * round] = !barrier.try_wait(1 - round % 2);
    }
    __syncthreads();
  }
}

TEST_F(KitBarrierGpu, PhaseCompletesWithTheLastArrivalAlone) {
  const DeviceArray<unsigned> out(11);
  run(look_at_phases, {.block = 32}, out.data());
  EXPECT_TRUE(same(out.values(), [](std::size_t) { return 1U; }));
}

// Every thread writes a word, arrives, waits and reads its neighbour's, whose warp differs.
template <class B>
__global__ void exchange(unsigned rounds, unsigned* errors) {
  __shared__ B written, read;
  __shared__ unsigned words[96];
  const unsigned me = threadIdx.x, neighbour = (me + 37) % 96;
  if (me == 0) {
    written.init(96);
    read.init(96);
    ps::kit::fence_barrier_init();
  }
  __syncthreads();
  unsigned wrong = 0;
  for (unsigned round = 0; round < rounds; ++round) {
    ps::test::loiter(round);
    words[me] = round * 96 + me;
    written.arrive();
    written.wait(round % 2);
    wrong += words[neighbour] != round * 96 + neighbour;
    read.arrive();
    read.wait(round % 2);
  }
  errors[me] = wrong;
}

TEST_F(KitBarrierGpu, OrdersWritesBeforeReadsInManyRounds) {
  const DeviceArray<unsigned> errors(96);
  run(exchange<Patient<Barrier>>, {.block = 96}, 1000U, errors.data());
  EXPECT_TRUE(same(errors.values(), [](std::size_t) { return 0U; }));
}

// The kit's own wait(), which is endless where something is wrong.
TEST_F(KitBarrierGpu, WaitReturns) {
  const DeviceArray<unsigned> errors(96);
  run(exchange<Barrier>, {.block = 96}, 100U, errors.data());
  EXPECT_TRUE(same(errors.values(), [](std::size_t) { return 0U; }));
}

// The memory of a barrier becomes another one.
__global__ void reuse(unsigned* errors) {
  __shared__ Patient<Barrier> barrier;
  __shared__ unsigned word;
  unsigned wrong = 0;
  for (unsigned arrivals = 1; arrivals <= 64; arrivals += 21) {
    if (threadIdx.x == 0) {
      barrier.init(arrivals);
      ps::kit::fence_barrier_init();
      word = 0;
    }
    __syncthreads();
    if (threadIdx.x == 0) word = arrivals;
    if (threadIdx.x < arrivals) barrier.arrive();
    barrier.wait(0);
    wrong += word != arrivals;
    __syncthreads();
    if (threadIdx.x == 0) barrier.invalidate();
    __syncthreads();
  }
  errors[threadIdx.x] = wrong;
}

TEST_F(KitBarrierGpu, IsMadeAnew) {
  const DeviceArray<unsigned> errors(64);
  run(reuse, {.block = 64}, errors.data());
  EXPECT_TRUE(same(errors.values(), [](std::size_t) { return 0U; }));
}

// Two copies onto one phase: their bytes are announced with the arrival and without one.
__global__ void announce(const std::uint32_t* in, std::uint32_t* out, unsigned rounds) {
  __shared__ alignas(16) std::uint32_t words[256];
  __shared__ Patient<Barrier> full;
  if (threadIdx.x == 0) {
    full.init(1);
    ps::kit::fence_barrier_init();
  }
  __syncthreads();
  for (unsigned round = 0; round < rounds; ++round) {
    if (threadIdx.x == 0) {
      full.expect(512);
      ps::kit::bulk_load(words, in + round * 256, 512, full);
      ps::kit::bulk_load(words + 128, in + round * 256 + 128, 512, full);
      full.arrive_expect(512);
    }
    full.wait(round % 2);
    out[round * 256 + threadIdx.x] = words[threadIdx.x];
    __syncthreads();
  }
}

TEST_F(KitBarrierGpu, WaitsForAllBytes) {
  constexpr unsigned rounds = 50;
  const auto words = noise(256 * rounds);
  const DeviceArray<std::uint32_t> in(words), out(words.size());
  run(announce, {.block = 256}, in.data(), out.data(), rounds);
  EXPECT_TRUE(same(out.values(), words));
}

// Every thread's copies arrive for it; another thread reads what they brought.
__global__ void arrive_by_copies(const uint4* in, uint4* out, unsigned rounds) {
  __shared__ uint4 words[2][128];
  __shared__ Patient<Barrier> full;
  if (threadIdx.x == 0) {
    full.init(128);
    ps::kit::fence_barrier_init();
  }
  __syncthreads();
  for (unsigned round = 0; round < rounds; ++round) {
    const unsigned me = round * 128 + threadIdx.x, other = (threadIdx.x + 45) % 128;
    ps::test::loiter(round);
    ps::kit::cp_async<16>(&words[round % 2][threadIdx.x], in + me);
    ps::kit::cp_async_arrive(full);
    full.wait(round % 2);
    out[round * 128 + other] = words[round % 2][other];
    __syncthreads();
  }
}

TEST_F(KitBarrierGpu, CopiesOfThreadsArrive) {
  constexpr unsigned rounds = 50;
  const auto words = noise(512 * rounds);
  const DeviceArray<std::uint32_t> in(words), out(words.size());
  run(arrive_by_copies, {.block = 128}, reinterpret_cast<const uint4*>(in.data()),
      reinterpret_cast<uint4*>(out.data()), rounds);
  EXPECT_TRUE(same(out.values(), words));
}

}  // namespace
