// Capture into a CUDA graph: what may be captured is replayed with right results, what may not is
// refused in words and leaves the capture as it was.
#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpu/gate.h"
#include "gpu/gpu_pipeline.h"
#include "gpu/gpu_test.h"
#include "gpu/recording.h"
#include "penstock/base/error.h"
#include "penstock/base/units.h"
#include "penstock/host/cuda.h"
#include "penstock/host/slot_ring.h"
#include "penstock/ops/iterate.h"
#include "support/failure_of.h"

namespace ps::test {
namespace {

constexpr std::size_t count = 10'001;
constexpr std::size_t bytes = count * sizeof(float);

class CaptureGpu : public GpuTest {
 protected:
  // Each gives Unsupported with its name and does the capture no harm.
  void expect_refused(
      const Stream& stream,
      const std::vector<std::pair<const char*, std::function<void()>>>& calls) const {
    const DeviceBuffer memory(gpu, bytes);
    fill(memory.view(), poison, stream);
    stream.synchronize();
    Recording recording(cuda_stream(stream));
    fill(memory.view().sub(0, 1000), 1, stream);
    for (const auto& [name, call] : calls) {
      const auto failure = failure_of(call);
      EXPECT_TRUE(is<Unsupported>(failure)) << name << ": " << text(failure);
      EXPECT_NE(text(failure).find(name), std::string::npos) << text(failure);
      EXPECT_TRUE(recording.active()) << name;
    }
    fill(memory.view().sub(1000, bytes - 1000), 1, stream);
    recording.replay(cuda_stream(stream));
    stream.synchronize();
    EXPECT_TRUE(all_are(look(memory.view()), 1));
    EXPECT_TRUE(no_error_left());
  }
};

TEST_F(CaptureGpu, CopiesFillsAndKernels) {
  const Stream stream(gpu);
  const PinnedBuffer in(gpu, bytes), out(gpu, bytes);
  const DeviceBuffer data(gpu, bytes);
  const TensorView most = floats(data.view(), 0, count - 1);
  iterate({.in = most, .out = most}, stream);  // loads the kernel
  stream.synchronize();
  std::memset(out.view().data, poison, bytes);

  Recording recording(cuda_stream(stream));
  copy(data.view(), in.view(), stream);
  iterate({.in = most, .out = most, .rounds = 4}, stream);
  fill(data.view().sub(bytes - sizeof(float), sizeof(float)), 0, stream);
  copy(out.view(), data.view(), stream);
  ASSERT_EQ(recording.end(), cudaSuccess);
  stream.synchronize();
  const auto* const got = out.view().as<std::uint8_t>();
  EXPECT_TRUE(all_are({got, got + bytes}, poison)) << "captured, not run";

  for (int launch = 0; launch < 3; ++launch) {
    for (std::size_t i = 0; i < count; ++i) {
      in.view().as<float>()[i] = static_cast<float>(i) * static_cast<float>(launch + 1);
    }
    recording.replay(cuda_stream(stream));
    stream.synchronize();
    for (std::size_t i = 0; i < count; ++i) {
      const float wanted = i + 1 < count ? iterated(in.view().as<float>()[i], 4) : 0.0F;
      ASSERT_EQ(out.view().as<float>()[i], wanted) << "element " << i << ", launch " << launch;
    }
  }
}

TEST_F(CaptureGpu, EventsForkAndJoin) {
  const CallersStream callers;
  const Stream stream = borrow(gpu, callers.get()), side(gpu);
  const DeviceBuffer data(gpu, 3 * bytes);
  const Event forked(gpu), joined(gpu);
  const auto third = [&](std::size_t i) { return data.view().sub(i * bytes, bytes); };
  fill(data.view(), poison, stream);
  stream.synchronize();

  Recording recording(callers.get());
  fill(third(0), 1, stream);
  stream.record(forked);
  side.wait(forked);
  copy(third(1), third(0), side);
  side.record(joined);
  stream.wait(joined);
  copy(third(2), third(1), stream);
  recording.replay(callers.get());
  stream.synchronize();
  EXPECT_TRUE(all_are(look(data.view()), 1));

  // The events and the side stream are the caller's again.
  side.record(joined);
  joined.synchronize();
  EXPECT_TRUE(joined.done());
}

TEST_F(CaptureGpu, PoolMemoryBelongsToTheGraph) {
  const Stream stream(gpu);
  const Pool pool(gpu);
  const PinnedBuffer out(gpu, bytes);
  Recording recording(cuda_stream(stream));
  const MemoryView scratch = pool.allocate(bytes, stream);
  fill(scratch, 3, stream);
  copy(out.view(), scratch, stream);
  pool.free(scratch, stream);
  for (int launch = 0; launch < 3; ++launch) {
    std::memset(out.view().data, poison, bytes);
    recording.replay(cuda_stream(stream));
    stream.synchronize();
    const auto* const got = out.view().as<std::uint8_t>();
    EXPECT_TRUE(all_are({got, got + bytes}, 3));
  }
  EXPECT_EQ(pool.statistics().in_use, 0U);
}

TEST_F(CaptureGpu, CallsThatWaitOrRunHostCodeAreRefused) {
  const CallersStream callers;
  for (const Stream& stream : {Stream(gpu), borrow(gpu, callers.get())}) {
    const Event cpu_event(Device::cpu());
    expect_refused(stream, {{"Stream::call", [&] { stream.call([] {}); }},
                            {"Stream::notify", [&] { stream.notify([] {}); }},
                            {"Stream::synchronize", [&] { stream.synchronize(); }},
                            {"Stream::done", [&] { (void)stream.done(); }},
                            {"Stream::call", [&] { stream.wait(cpu_event); }}});
    // Before and after a capture they work.
    bool ran = false;
    stream.call([&] { ran = true; });
    stream.synchronize();
    EXPECT_TRUE(ran);
  }
}

TEST_F(CaptureGpu, ARunIsRefused) {
  const Stream stream(gpu);
  GpuPipeline behind(gpu), on(gpu, {.streams = {stream}});
  behind.run_well(5);
  on.run_well(5);
  expect_refused(stream, {{"Pipeline::run", [&] { behind.run({.items = 5, .after = stream}); }},
                          {"Pipeline::run", [&] { on.run({.items = 5}); }}});
  behind.run_well(5);
  on.run_well(5);
}

TEST_F(CaptureGpu, ReturningASlotIsRefused) {
  const Stream stream(gpu);
  SlotRing ring(gpu, {.slots = 1, .slot_bytes = 64});
  SlotRing::Slot slot = ring.acquire();
  expect_refused(stream, {{"release_after", [&] { slot.release_after(stream); }}});
  slot.release_after(stream);
  EXPECT_NO_THROW(ring.acquire()) << "the slot is lost";
}

TEST_F(CaptureGpu, ACapturedEventCannotBeWaitedFor) {
  const Stream stream(gpu);
  const DeviceBuffer memory(gpu, bytes);
  for (const Waiting waiting : {Waiting::poll, Waiting::spin, Waiting::block}) {
    const Event event(gpu, {.waiting = waiting});
    {
      Recording recording(cuda_stream(stream));
      fill(memory.view(), 1, stream);
      stream.record(event);
      for (const auto& call : {std::function<void()>([&] { event.synchronize(); }),
                               std::function<void()>([&] { (void)event.done(); })}) {
        const auto failure = failure_of(call);
        EXPECT_TRUE(is<Unsupported>(failure)) << text(failure);
        EXPECT_TRUE(no_error_left());
        EXPECT_TRUE(recording.active()) << "the capture goes on";
      }
      EXPECT_EQ(recording.end(), cudaSuccess);
    }
    EXPECT_TRUE(is<Unsupported>(failure_of([&] { event.synchronize(); })))
        << "it marks a point of the graph, not of a stream";
    stream.record(event);
    event.synchronize();
    fill(memory.view(), 2, stream);
    stream.synchronize();
    EXPECT_TRUE(all_are(look(memory.view()), 2));
  }
}

TEST_F(CaptureGpu, WhatCudaForbidsIsAnErrorThatPasses) {
  const Stream stream(gpu);
  {
    Recording recording(cuda_stream(stream));
    const auto failure = failure_of([&] { const DeviceBuffer made(gpu, bytes); });
    EXPECT_TRUE(is<DeviceError>(failure)) << text(failure);
    EXPECT_FALSE(is<DeviceLost>(failure)) << text(failure);
    EXPECT_TRUE(no_error_left());
  }
  const DeviceBuffer memory(gpu, bytes);
  fill(memory.view(), 2, stream);
  stream.synchronize();
  EXPECT_TRUE(all_are(look(memory.view()), 2));
}

// A capture forbids some calls to every thread that does not say otherwise; the library's threads
// wait for events while a caller, who cannot know of them, captures.
TEST_F(CaptureGpu, TheLibrarysThreadsDoNotDisturbOne) {
  const Stream busy(gpu), stream(gpu);
  const DeviceBuffer memory(gpu, bytes), target(gpu, 64);
  {
    // CUDA loads kernels when they are first needed, and may wait for all streams.
    const PinnedBuffer source(gpu, 64);
    copy(target.view(), source.view(), busy);
    fill(memory.view(), 1, stream);
    gpu.synchronize();
  }
  for (const Waiting waiting : {Waiting::poll, Waiting::spin, Waiting::block}) {
    SlotRing ring(gpu, {.slots = 1, .slot_bytes = 64, .waiting = waiting});
    bool ran = false;
    {
      const Gate gate(cuda_stream(busy));
      SlotRing::Slot slot = ring.acquire();
      copy(target.view(), slot.view(), busy);
      slot.release_after(busy);
      busy.notify([&] { ran = true; });
      Recording recording(cuda_stream(stream));
      for (int i = 0; i < 50; ++i) {
        std::this_thread::sleep_for(std::chrono::microseconds(100));
        fill(memory.view(), 1, stream);
      }
      EXPECT_EQ(recording.end(), cudaSuccess);
    }
    EXPECT_NO_THROW(ring.acquire());
    EXPECT_NO_THROW(busy.synchronize());
    EXPECT_TRUE(ran);
  }
}

}  // namespace
}  // namespace ps::test
