// Streams and events on a GPU: owned ones, and those that a caller passes.
#include "penstock/host/stream.h"

#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpu/gate.h"
#include "gpu/gpu_test.h"
#include "penstock/base/error.h"
#include "penstock/base/units.h"
#include "penstock/host/buffer.h"
#include "penstock/host/cuda.h"
#include "penstock/ops/iterate.h"
#include "support/waiting_name.h"

namespace ps::test {
namespace {

constexpr std::size_t bytes = 64 * KiB + 3;

class StreamGpu : public GpuTest {};

TEST_F(StreamGpu, OwnedStreamsAreNonBlocking) {
  const Stream stream(gpu);
  EXPECT_TRUE(stream.owned());
  EXPECT_TRUE(stream.device() == gpu);
  unsigned flags = 0;
  ASSERT_EQ(cudaStreamGetFlags(cuda_stream(stream), &flags), cudaSuccess);
  EXPECT_EQ(flags, unsigned{cudaStreamNonBlocking});

  const DeviceBuffer memory(gpu, bytes);
  fill(memory.view(), 1, stream);
  stream.synchronize();
  const Gate gate(cudaStreamLegacy);
  fill(memory.view(), 2, stream);
  stream.synchronize();  // would wait for the gate in a blocking stream
  EXPECT_TRUE(all_are(look(memory.view()), 2));
}

TEST_F(StreamGpu, PrioritiesAreTheDevices) {
  int least = 0, greatest = 0, normal = 0, high = 0;
  ASSERT_EQ(cudaDeviceGetStreamPriorityRange(&least, &greatest), cudaSuccess);
  const Stream usual(gpu), urgent(gpu, {.priority = Priority::high});
  ASSERT_EQ(cudaStreamGetPriority(cuda_stream(usual), &normal), cudaSuccess);
  ASSERT_EQ(cudaStreamGetPriority(cuda_stream(urgent), &high), cudaSuccess);
  EXPECT_EQ(high, greatest);
  EXPECT_EQ(normal, least);
}

TEST_F(StreamGpu, DoneSaysWhetherTheWorkIsAndLeavesNoError) {
  const Stream stream(gpu);
  const Event event(gpu);
  EXPECT_TRUE(stream.done());
  EXPECT_TRUE(event.done()) << "an event that was never recorded counts as complete";
  {
    const Gate gate(cuda_stream(stream));
    stream.record(event);
    EXPECT_FALSE(stream.done());
    EXPECT_FALSE(event.done());
    EXPECT_TRUE(no_error_left()) << "\"not ready\" is no error of the caller's";
  }
  stream.synchronize();
  EXPECT_TRUE(stream.done());
  EXPECT_TRUE(event.done());
}

TEST_F(StreamGpu, WorkOutlivesTheLastHandle) {
  const DeviceBuffer memory(gpu, bytes);
  const Event done(gpu);
  std::optional<Stream> stream(std::in_place, gpu);
  Gate gate(cuda_stream(*stream));
  fill(memory.view(), 7, *stream);
  stream->record(done);
  stream.reset();
  EXPECT_FALSE(done.done());
  gate.open();
  done.synchronize();
  EXPECT_TRUE(all_are(look(memory.view()), 7));
}

TEST_F(StreamGpu, PageableMemoryIsRefusedUnlessAllowed) {
  const Stream stream(gpu);
  const DeviceBuffer memory(gpu, bytes);
  std::vector<std::byte> pageable(bytes, std::byte{3});
  const MemoryView host{pageable.data(), bytes, {Memory::host}};
  EXPECT_THROW(copy(memory.view(), host, stream), InvalidArgument);
  copy(memory.view(), host, stream, {.allow_pageable = true});
  stream.synchronize();
  EXPECT_TRUE(all_are(look(memory.view()), 3));
}

// Every stream a caller may pass, by name.
class BorrowedStreamGpu : public GpuTest, public testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    const std::string which = GetParam();
    if (IsSkipped() || which == "Zero") return;
    if (which == "Legacy") {
      native = cudaStreamLegacy;
    } else if (which == "PerThread") {
      native = cudaStreamPerThread;
    } else {
      made.emplace(which == "Blocking" ? cudaStreamDefault : cudaStreamNonBlocking);
      native = made->get();
    }
  }

  std::optional<CallersStream> made;
  cudaStream_t native = nullptr;
};

INSTANTIATE_TEST_SUITE_P(Passed, BorrowedStreamGpu,
                         testing::Values("Zero", "Legacy", "PerThread", "Blocking", "NonBlocking"),
                         [](const auto& tested) { return std::string(tested.param); });

TEST_P(BorrowedStreamGpu, KeepsTheHandle) {
  const Stream stream = borrow(gpu, native);
  EXPECT_FALSE(stream.owned());
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
  const cudaStream_t zero = cudaStreamPerThread;
#else
  const cudaStream_t zero = cudaStreamLegacy;
#endif
  EXPECT_EQ(cuda_stream(stream), native == nullptr ? zero : native);
}

// The library's work waits for the caller's before it, and the caller's after it for the library's.
TEST_P(BorrowedStreamGpu, TakesTheLibrarysWorkInTheCallersOrder) {
  const Stream stream = borrow(gpu, native);
  const DeviceBuffer memory(gpu, bytes), copied(gpu, bytes);
  const Event event(gpu);
  const auto clear = [&](const DeviceBuffer& buffer) {
    ASSERT_EQ(cudaMemsetAsync(buffer.view().data, poison, bytes, native), cudaSuccess);
  };
  clear(memory), clear(copied);
  fill(memory.view(), poison, stream);
  stream.synchronize();

  Gate gate(native);
  ASSERT_EQ(cudaMemsetAsync(memory.view().data, 4, bytes / 2, native), cudaSuccess);
  fill(memory.view().sub(bytes / 2, bytes - bytes / 2), 4, stream);
  copy(copied.view(), memory.view(), stream);
  stream.record(event);
  stream.wait(event);
  EXPECT_FALSE(stream.done());
  EXPECT_FALSE(event.done());
  EXPECT_TRUE(all_are(look(memory.view()), poison)) << "ran ahead of the caller's work";
  ASSERT_EQ(cudaMemsetAsync(memory.view().data, 9, bytes, native), cudaSuccess);
  gate.open();
  ASSERT_EQ(cudaStreamSynchronize(native), cudaSuccess);
  EXPECT_TRUE(event.done());
  EXPECT_TRUE(all_are(look(copied.view()), 4));
  EXPECT_TRUE(all_are(look(memory.view()), 9)) << "the caller's work ran ahead of the library's";
}

TEST_P(BorrowedStreamGpu, IsNeverDestroyed) {
  {
    const Stream stream = borrow(gpu, native);
    stream.call([] {});
    stream.synchronize();
  }
  EXPECT_EQ(cudaStreamSynchronize(native), cudaSuccess);
}

class EventGpu : public GpuTest, public testing::WithParamInterface<Waiting> {
 protected:
  EventOptions options() const { return {.waiting = GetParam()}; }
};

INSTANTIATE_TEST_SUITE_P(Ways, EventGpu,
                         testing::Values(Waiting::poll, Waiting::spin, Waiting::block),
                         waiting_name);

TEST_P(EventGpu, SynchronizeWaitsForThePoint) {
  const Stream stream(gpu);
  const DeviceBuffer memory(gpu, bytes);
  const Event event(gpu, options());
  for (std::uint8_t value = 0; value < 5; ++value) {
    Gate gate(cuda_stream(stream));
    fill(memory.view(), value, stream);
    stream.record(event);
    EXPECT_FALSE(event.done());
    const std::jthread opener([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      gate.open();
    });
    event.synchronize();
    EXPECT_TRUE(gate.is_open());
    EXPECT_TRUE(event.done());
    ASSERT_TRUE(all_are(look(memory.view()), value));
  }
}

TEST_P(EventGpu, OrdersWorkAcrossStreams) {
  const Stream first(gpu), second(gpu, {.priority = Priority::high});
  const CallersStream callers;
  const Stream third = borrow(gpu, callers.get());
  const DeviceBuffer a(gpu, bytes), b(gpu, bytes);
  const PinnedBuffer out(gpu, bytes);
  const Event filled(gpu, options()), copied(gpu, options()), done(gpu, options());
  for (std::uint8_t value = 0; value < 20; ++value) {
    std::memset(out.view().data, poison, bytes);
    Gate gate(cuda_stream(first));
    fill(a.view(), value, first);
    first.record(filled);
    second.wait(filled);
    copy(b.view(), a.view(), second);
    second.record(copied);
    third.wait(copied);
    copy(out.view(), b.view(), third);
    third.record(done);
    EXPECT_FALSE(second.done());
    EXPECT_FALSE(third.done());
    gate.open();
    done.synchronize();
    first.wait(done);
    const auto* got = out.view().as<std::uint8_t>();
    ASSERT_TRUE(all_are({got, got + bytes}, value));
  }
}

TEST_P(EventGpu, RecordingAgainLeavesEarlierWaitsAlone) {
  const Stream first(gpu), second(gpu);
  const Event event(gpu, options());
  first.record(event);
  second.wait(event);
  const Gate gate(cuda_stream(first));
  first.record(event);
  second.synchronize();  // the first point was reached; the second is behind the gate
  EXPECT_FALSE(event.done());
}

TEST_F(StreamGpu, TimesBetweenEventsArePlausible) {
  const Stream stream(gpu);
  const DeviceBuffer memory(gpu, MiB);
  const TensorView data = floats(memory.view(), 0, MiB / sizeof(float));
  const Event start(gpu, {.timing = true}), stop(gpu, {.timing = true}), untimed(gpu);
  fill(memory.view(), 0, stream);
  iterate({.in = data, .out = data}, stream);
  stream.synchronize();
  EXPECT_THROW(Event::seconds_between(start, stop), InvalidArgument) << "never recorded";

  const auto before = std::chrono::steady_clock::now();
  stream.record(start);
  iterate({.in = data, .out = data, .rounds = 1000}, stream);
  stream.record(stop);
  stream.record(untimed);
  stop.synchronize();
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - before;
  const double seconds = Event::seconds_between(start, stop);
  EXPECT_GT(seconds, 0.0);
  // The device's clock ticks in microseconds.
  EXPECT_LE(seconds, wall.count() + 1e-5);
  stream.synchronize();
  EXPECT_THROW(Event::seconds_between(start, untimed), InvalidArgument);

  const Gate gate(cuda_stream(stream));
  stream.record(stop);
  EXPECT_THROW(Event::seconds_between(start, stop), InvalidArgument) << "still pending";
}

}  // namespace
}  // namespace ps::test
