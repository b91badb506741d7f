// The in-kernel trace, from kernels that work for known times to what the reader says of them.
#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "gpu/gpu_test.h"
#include "penstock/host/buffer.h"
#include "penstock/host/cuda.h"
#include "penstock/kit/trace.cuh"
#include "penstock/trace/kernel_trace.h"

namespace ps::test {
namespace {

using kit::Trace;
using kit::TraceBuffer;
using kit::TraceShape;

constexpr unsigned threads = 96;  // a warp a role, and one that has nothing to do but sign
constexpr unsigned signer = 64;

// What role `role` spends on a tile, in clocks.
__host__ __device__ constexpr unsigned work(unsigned role) { return role == 0 ? 10'000 : 30'000; }

__device__ void spin(unsigned clocks) {
  const long long since = clock64();
  while (clock64() - since < clocks) {
  }
}

template <bool traced>
__global__ void __launch_bounds__(threads)
    two_roles(unsigned tiles, unsigned* done, TraceBuffer<traced> buffer) {
  Trace<traced> trace(buffer);
  trace.begin(threadIdx.x == signer);
  if (threadIdx.x < signer) {
    const unsigned role = threadIdx.x / 32;
    auto mine = trace.role(role, threadIdx.x % 32 == 0);
    for (unsigned tile = 0; tile < tiles; ++tile) {
      const auto start = mine.now();
      spin(work(role));
      mine.record(1000 * blockIdx.x + tile, start);
    }
    if (threadIdx.x % 32 == 0) atomicAdd(done, tiles);
  }
  __syncthreads();
  trace.end(threadIdx.x == signer);
}

// All blocks record the moment at which the timer that they share reaches the same time.
__global__ void all_at_once(unsigned long long* moment, TraceBuffer<true> buffer) {
  Trace<true> trace(buffer);
  trace.begin(threadIdx.x == 0);
  if (threadIdx.x == 0) {
    auto mine = trace.role(0, true);
    const unsigned long long mine_to_set = kit::SmSource::nanoseconds() + 200'000;
    const unsigned long long before = atomicCAS(moment, 0ULL, mine_to_set);
    const unsigned long long agreed = before == 0 ? mine_to_set : before;
    while (kit::SmSource::nanoseconds() < agreed) {
    }
    mine.record(0, mine.now());
    spin(20'000);
  }
  trace.end(threadIdx.x == 0);
}

class KitTraceGpu : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    int count = 0;
    ASSERT_EQ(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0), cudaSuccess);
    multiprocessors = static_cast<unsigned>(count);
  }

  // Runs the two roles on `grid` blocks and returns the buffer, which was filled with `before`.
  template <bool traced>
  std::vector<std::uint8_t> run(const TraceShape& shape, dim3 grid, unsigned tiles,
                                std::uint8_t before = 0) const {
    const Stream stream(gpu);
    const DeviceBuffer memory(gpu, kit::trace_bytes(shape)), done(gpu, sizeof(unsigned));
    fill(memory.view(), before, stream);
    fill(done.view(), 0, stream);
    two_roles<traced><<<grid, threads, 0, cuda_stream(stream)>>>(
        tiles, done.view().as<unsigned>(), TraceBuffer<traced>(memory.view().data, shape));
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    stream.synchronize();
    unsigned counted = 0;
    const std::vector<std::uint8_t> bytes = look(done.view());
    std::memcpy(&counted, bytes.data(), sizeof(counted));
    EXPECT_EQ(counted, grid.x * grid.y * grid.z * 2 * tiles) << "not all of the work was done";
    return look(memory.view());
  }

  // A GPU at rest changes its clocks' rate when work comes, and a line fits no bend.
  void warm_up(const Stream& stream) const {
    const DeviceBuffer done(gpu, sizeof(unsigned));
    fill(done.view(), 0, stream);
    two_roles<false><<<multiprocessors, threads, 0, cuda_stream(stream)>>>(
        3000, done.view().as<unsigned>(), {});
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    stream.synchronize();
  }

  static KernelTrace read(const std::vector<std::uint8_t>& bytes,
                          std::vector<std::string> roles = {"short", "long"}) {
    return KernelTrace(std::as_bytes(std::span(bytes)), std::move(roles));
  }

  static std::vector<RoleSpan> of(const KernelRoles& result, unsigned block, unsigned role) {
    std::vector<RoleSpan> spans = result.spans;
    std::erase_if(spans, [&](const RoleSpan& s) { return s.block != block || s.role != role; });
    return spans;
  }

  static std::vector<unsigned> numbers(unsigned count) {
    std::vector<unsigned> all(count);
    for (unsigned i = 0; i < count; ++i) all[i] = i;
    return all;
  }

  unsigned multiprocessors = 0;
};

// The records themselves, before any alignment: the clock is the one that the work was timed by.
TEST_F(KitTraceGpu, RecordsHaveTheLengthOfTheWork) {
  const TraceShape shape{.blocks = 4, .roles = 2, .capacity = 16};
  const std::vector<std::uint8_t> bytes = run<true>(shape, 4, 10);
  const std::size_t slices = sizeof(KernelTraceHead) + 4 * sizeof(KernelTraceBlock);
  const std::size_t slice = sizeof(KernelTraceRole) + 16 * sizeof(KernelTraceRecord);
  for (unsigned block = 0; block < 4; ++block) {
    for (unsigned role = 0; role < 2; ++role) {
      const std::uint8_t* at = bytes.data() + slices + (block * 2 + role) * slice;
      KernelTraceRole head;
      std::memcpy(&head, at, sizeof(head));
      ASSERT_EQ(head.count, 10U);
      EXPECT_EQ(head.lost, 0U);
      std::vector<KernelTraceRecord> records(10);
      std::memcpy(records.data(), at + sizeof(head), 10 * sizeof(KernelTraceRecord));
      std::vector<std::uint32_t> lengths;
      for (unsigned i = 0; i < 10; ++i) {
        EXPECT_EQ(records[i].tile, 1000 * block + i);
        EXPECT_GE(records[i].length, work(role)) << "the clock was read before the work was done";
        if (i > 0) EXPECT_GE(records[i].start, records[i - 1].start + records[i - 1].length);
        lengths.push_back(records[i].length);
      }
      std::ranges::sort(lengths);
      EXPECT_LT(lengths[5], work(role) * 1.1 + 1000) << "half of them are off";
    }
  }
}

TEST_F(KitTraceGpu, EveryRecordOfEveryBlockArrives) {
  for (const unsigned blocks : {1U, 7U, multiprocessors, 4 * multiprocessors + 3}) {
    SCOPED_TRACE(blocks);
    const TraceShape shape{.blocks = blocks, .roles = 2, .capacity = 8};
    const KernelTrace trace = read(run<true>(shape, blocks, 5));
    EXPECT_EQ(trace.grid(), blocks);
    ASSERT_EQ(trace.blocks().size(), blocks);
    const KernelRoles result = trace.roles({.blocks = numbers(blocks)});
    ASSERT_EQ(result.spans.size(), blocks * 2U * 5);
    EXPECT_EQ(result.lost, 0U);
    const auto shorter = of(result, blocks - 1, 0), longer = of(result, blocks - 1, 1);
    ASSERT_EQ(shorter.size(), 5U);
    ASSERT_EQ(longer.size(), 5U);
    const auto length = [](const RoleSpan& span) {
      return static_cast<double>(span.end_ns - span.begin_ns);
    };
    EXPECT_NEAR(length(longer[2]) / length(shorter[2]), 3.0, 0.6);
    EXPECT_GT(length(shorter[2]), 10'000 / 4.0) << "no GPU's clock runs at 4 GHz";
    EXPECT_LT(length(shorter[2]), 10'000 * 10.0);
  }
}

TEST_F(KitTraceGpu, SwitchedOffItWritesNothing) {
  const TraceShape shape{.blocks = 4, .roles = 2, .capacity = 8};
  EXPECT_TRUE(all_are(run<false>(shape, 4, 5, poison), poison));
}

TEST_F(KitTraceGpu, WhatDoesNotFitIsCountedAndHarmsNothing) {
  const TraceShape shape{.blocks = 3, .roles = 2, .capacity = 4};
  const KernelTrace trace = read(run<true>(shape, 3, 9));
  for (const KernelTrace::Block& block : trace.blocks()) {
    EXPECT_EQ(block.records, 2U * 4);
    EXPECT_EQ(block.lost, 2U * 5);
  }
  const KernelRoles result = trace.roles({.blocks = {0, 1, 2}});
  EXPECT_EQ(result.lost, 3U * 2 * 5);
  for (unsigned block = 0; block < 3; ++block) {
    const auto kept = of(result, block, 1);
    ASSERT_EQ(kept.size(), 4U);
    for (unsigned i = 0; i < 4; ++i) EXPECT_EQ(kept[i].tile, 1000 * block + i);
  }
}

TEST_F(KitTraceGpu, BlocksAndRolesBeyondTheBufferLeaveNoTrace) {
  const TraceShape shape{.blocks = 3, .roles = 1, .capacity = 8};
  const KernelTrace trace = read(run<true>(shape, dim3(2, 3, 2), 2), {"short"});
  EXPECT_EQ(trace.grid(), 12U);
  EXPECT_EQ(trace.blocks().size(), 3U);
  EXPECT_EQ(trace.roles({.blocks = {0, 1, 2}}).spans.size(), 3U * 2);
}

TEST_F(KitTraceGpu, TheClocksOfAllMultiprocessorsAreAligned) {
  const TraceShape shape{.blocks = multiprocessors, .roles = 1, .capacity = 1};
  const Stream stream(gpu);
  const DeviceBuffer memory(gpu, kit::trace_bytes(shape)), moment(gpu, sizeof(std::uint64_t));
  fill(memory.view(), 0, stream);
  fill(moment.view(), 0, stream);
  warm_up(stream);
  all_at_once<<<multiprocessors, 32, 0, cuda_stream(stream)>>>(
      moment.view().as<unsigned long long>(), TraceBuffer<true>(memory.view().data, shape));
  ASSERT_EQ(cudaGetLastError(), cudaSuccess);
  stream.synchronize();
  const KernelTrace trace = read(look(memory.view()), {"all"});
  RecordProperty("max_error_ns", std::to_string(trace.error().max_ns));
  RecordProperty("median_error_ns", std::to_string(trace.error().median_ns));
  RecordProperty("tick_ns", std::to_string(trace.tick_ns()));
  EXPECT_EQ(trace.pairs(), multiprocessors * 2ULL * kernel_trace_pairs);
  EXPECT_LT(trace.error().median_ns, 150);
  EXPECT_LT(trace.error().max_ns, 2000);

  // The same moment, seen by every multiprocessor through its own clock.
  const KernelRoles result = trace.roles({.blocks = numbers(multiprocessors)});
  ASSERT_EQ(result.spans.size(), multiprocessors);
  const auto [first, last] = std::ranges::minmax(result.spans, {}, &RoleSpan::begin_ns);
  EXPECT_LT(static_cast<double>(last.begin_ns - first.begin_ns),
            static_cast<double>(trace.tick_ns()) + 2 * trace.error().max_ns + 200)
      << "with an error of " << trace.error().max_ns << " ns";
}

TEST_F(KitTraceGpu, FitsIntoTheKernelsOwnInterval) {
  const TraceShape shape{.blocks = multiprocessors, .roles = 2, .capacity = 8};
  const Stream stream(gpu);
  const DeviceBuffer memory(gpu, kit::trace_bytes(shape)), done(gpu, sizeof(unsigned));
  const Event before(gpu, {.timing = true}), after(gpu, {.timing = true});
  fill(done.view(), 0, stream);
  warm_up(stream);
  for (int round = 0; round < 2; ++round) {  // the first launch loads the kernel between the events
    fill(memory.view(), 0, stream);
    stream.synchronize();
    stream.record(before);
    two_roles<true><<<multiprocessors, threads, 0, cuda_stream(stream)>>>(
        5, done.view().as<unsigned>(), TraceBuffer<true>(memory.view().data, shape));
    ASSERT_EQ(cudaGetLastError(), cudaSuccess);
    stream.record(after);
    stream.synchronize();
  }
  const auto taken = static_cast<std::int64_t>(Event::seconds_between(before, after) * 1e9);
  const KernelTrace trace = read(look(memory.view()));
  const KernelRoles result = trace.roles({.inside = Span{1'000'000, 1'000'000 + taken}});
  EXPECT_LE(result.place_ns, 50'000) << "the interval is much longer than the kernel";
  for (const RoleSpan& span : result.spans) {
    EXPECT_GE(span.begin_ns, 1'000'000 - 2'000);
    EXPECT_LE(span.end_ns, 1'000'000 + taken + 2'000);
  }
}

}  // namespace
}  // namespace ps::test
