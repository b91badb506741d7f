// Streams, events and host functions of a GPU, on the fake driver.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/host/buffer.h"
#include "penstock/host/event.h"
#include "penstock/host/stream.h"
#include "support/expect_clean.h"
#include "support/failure_of.h"
#include "support/fake_machine.h"
#include "support/watchdog.h"

namespace ps::test {
namespace {

// Both ways in which a stream can be held for a host function.
class CudaStream : public testing::TestWithParam<bool> {
 protected:
  void TearDown() override { EXPECT_TRUE(is_clean(driver)); }

  Watchdog watchdog{testing::UnitTest::GetInstance()->current_test_info()->name()};
  FakeMachine machine{{.devices = 2, .stream_wait_value = GetParam()}};
  FakeDriver& driver = machine.driver();
  Device gpu = machine.gpu();
};

INSTANTIATE_TEST_SUITE_P(Holding, CudaStream, testing::Values(true, false), [](const auto& tested) {
  return std::string(tested.param ? "ByFlag" : "ByCallback");
});

std::uint8_t* bytes_of(MemoryView view) { return view.as<std::uint8_t>(); }

TEST_P(CudaStream, CopiesInOrder) {
  const PinnedBuffer in(gpu, 64), out(gpu, 64);
  const DeviceBuffer work(gpu, 64);
  const Stream stream(gpu);
  EXPECT_TRUE(stream.owned());
  EXPECT_NE(stream.native(), nullptr);
  EXPECT_TRUE(stream.device() == gpu);
  std::memset(in.view().data, 5, 64);
  copy(work.view(), in.view(), stream);
  copy(out.view(), work.view(), stream);
  fill(work.view(), 9, stream);
  stream.synchronize();
  driver.host_read(out.view().data, 64);
  EXPECT_EQ(bytes_of(out.view())[63], 5);
  EXPECT_EQ(bytes_of(work.view())[63], 9);
  EXPECT_TRUE(stream.done());
}

TEST_P(CudaStream, EventsOrderStreamsAndDevices) {
  const Device other = machine.gpu(1);
  const PinnedBuffer host(gpu, 64);
  const DeviceBuffer here(gpu, 64), there(other, 64);
  const Stream first(gpu), second(other), third(gpu);
  const Event filled(gpu), copied(other, {.waiting = Waiting::spin}), done(gpu);
  EXPECT_TRUE(done.done()) << "an event that was never recorded counts as complete";
  for (std::uint8_t value = 0; value < 20; ++value) {
    fill(here.view(), value, first);
    first.record(filled);
    second.wait(filled);
    copy(there.view(), here.view(), second);
    second.record(copied);
    third.wait(copied);
    copy(host.view(), there.view(), third);
    third.record(done);
    first.wait(done);
    done.synchronize();
    EXPECT_TRUE(done.done());
    driver.host_read(host.view().data, 64);
    ASSERT_EQ(bytes_of(host.view())[63], value);
  }
}

TEST_P(CudaStream, AForgottenWaitIsSeen) {
  const DeviceBuffer memory(gpu, 64);
  const Stream first(gpu), second(gpu);
  fill(memory.view(), 1, first);
  fill(memory.view(), 2, second);
  EXPECT_TRUE(only_violation(driver, "does not wait for fill"));
  gpu.synchronize();
  driver.forgive();
}

TEST_P(CudaStream, TimesBetweenEvents) {
  const Stream stream(gpu);
  const Event start(gpu, {.timing = true}), stop(gpu, {.timing = true}), untimed(gpu);
  EXPECT_THROW(Event::seconds_between(start, stop), InvalidArgument);
  stream.record(start);
  launch(driver, stream, {}, {}, [] { std::this_thread::sleep_for(std::chrono::milliseconds(3)); });
  stream.record(stop);
  stream.record(untimed);
  EXPECT_THROW(Event::seconds_between(start, stop), InvalidArgument) << "still pending";
  stop.synchronize();
  EXPECT_GE(Event::seconds_between(start, stop), 0.003);
  stream.synchronize();
  EXPECT_THROW(Event::seconds_between(start, untimed), InvalidArgument);
}

TEST_P(CudaStream, AHostFunctionHoldsTheStream) {
  const PinnedBuffer in(gpu, 64);
  const DeviceBuffer out(gpu, 64);
  const Stream stream(gpu);
  for (std::uint8_t value = 0; value < 20; ++value) {
    stream.call([&, value] {
      driver.host_write(in.view().data, 64);
      std::memset(in.view().data, value, 64);
    });
    copy(out.view(), in.view(), stream);
    stream.synchronize();
    ASSERT_EQ(bytes_of(out.view())[63], value);
  }
}

TEST_P(CudaStream, HostFunctionsRunInOrderAndMayCallTheDriver) {
  const Stream stream(gpu), other(gpu);
  const PinnedBuffer memory(gpu, 64);
  std::vector<int> order;
  for (int i = 0; i < 30; ++i) {
    const auto function = [&, i] {
      order.push_back(i);
      fill(memory.view(), static_cast<std::uint8_t>(i), other);
      other.synchronize();
    };
    if (i % 3 == 0) {
      stream.notify(function);
    } else {
      stream.call(function);
    }
  }
  EXPECT_FALSE(stream.done());
  stream.synchronize();
  ASSERT_EQ(order.size(), 30U);
  for (int i = 0; i < 30; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
  EXPECT_EQ(bytes_of(memory.view())[0], 29);
}

TEST_P(CudaStream, ANotificationDoesNotHoldTheStream) {
  const Stream stream(gpu);
  const Event behind(gpu);
  std::promise<void> go;
  stream.notify([gone = go.get_future().share()] { gone.wait(); });
  stream.record(behind);
  behind.synchronize();  // would never come if the stream waited for the function
  EXPECT_FALSE(stream.done()) << "the function is still running";
  go.set_value();
  stream.synchronize();
  EXPECT_TRUE(stream.done());
}

// The function could otherwise run beside work that was enqueued after it.
TEST_P(CudaStream, AFunctionDoesNotRunWhenHoldingTheStreamFails) {
  struct Fault {
    const char* call;
    std::uint64_t n;
  };
  // By flag, the stream may already wait when marking the place behind the wait fails.
  const std::vector<Fault> faults =
      GetParam() ? std::vector<Fault>{{"stream_wait_value", 1}, {"event_record", 2}}
                 : std::vector<Fault>{{"launch_host", 1}};
  for (const Fault& fault : faults) {
    const Stream stream(gpu);
    std::vector<std::string> ran;
    stream.call([&] { ran.emplace_back("before"); });
    driver.fail_call(fault.n, unknown_error, {fault.call});
    EXPECT_THROW(stream.call([&] { ran.emplace_back("failed"); }), DeviceError) << fault.call;
    EXPECT_TRUE(driver.fault_struck());
    driver.disarm();
    stream.call([&] { ran.emplace_back("behind"); });
    stream.synchronize();
    EXPECT_EQ(ran, (std::vector<std::string>{"before", "behind"})) << fault.call;
  }
}

TEST_P(CudaStream, AnExceptionComesOutOfSynchronizeOnce) {
  const Stream stream(gpu);
  std::atomic<bool> later{false};
  stream.call([] { throw std::domain_error("first"); });
  stream.notify([] { throw std::domain_error("second"); });
  stream.call([&] { later = true; });
  try {
    stream.synchronize();
    FAIL() << "no exception";
  } catch (const std::domain_error& error) {
    EXPECT_STREQ(error.what(), "first");
  }
  EXPECT_TRUE(later) << "the stream goes on behind a function that threw";
  stream.synchronize();
}

TEST_P(CudaStream, WorkSurvivesTheLastHandle) {
  const PinnedBuffer in(gpu, 64), out(gpu, 64);
  std::memset(in.view().data, 1, 64);
  std::promise<void> ran;
  const Event done(gpu);
  {
    const Stream stream(gpu);
    copy(out.view(), in.view(), stream);
    stream.call([&] { ran.set_value(); });
    stream.record(done);
  }
  done.synchronize();
  ran.get_future().wait();
  EXPECT_EQ(bytes_of(out.view())[63], 1);
}

TEST_P(CudaStream, WhatAFunctionCapturedIsGoneWhenSynchronizeReturns) {
  const Stream stream(gpu);
  auto shared = std::make_shared<int>(1);
  stream.call([shared] {});
  stream.notify([shared] {});
  stream.synchronize();
  EXPECT_EQ(shared.use_count(), 1);
}

TEST_P(CudaStream, ACpuEventCanBeWaitedFor) {
  const Stream cpu(Device::cpu()), stream(gpu);
  const Event ready(Device::cpu()), used(gpu);
  const PinnedBuffer in(gpu, 64), out(gpu, 64);
  cpu.call([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    driver.host_write(in.view().data, 64);
    std::memset(in.view().data, 7, 64);
  });
  cpu.record(ready);
  stream.wait(ready);
  copy(out.view(), in.view(), stream);
  stream.record(used);
  std::uint8_t seen = 0;
  cpu.wait(used);
  cpu.call([&] {
    driver.host_read(out.view().data, 64);
    seen = bytes_of(out.view())[63];
  });
  cpu.synchronize();
  EXPECT_EQ(seen, 7);
}

TEST_P(CudaStream, CopiesRefuseWhatWouldBlockOrFail) {
  const Stream stream(gpu);
  const DeviceBuffer memory(gpu, 64);
  std::vector<std::byte> pageable(64, std::byte{3});
  const MemoryView host{pageable.data(), pageable.size(), {Memory::host}};
  EXPECT_THROW(copy(memory.view(), host, stream), InvalidArgument);
  EXPECT_THROW(copy(memory.view(), memory.view().sub(0, 8), stream), InvalidArgument);
  EXPECT_THROW(fill(MemoryView{nullptr, 8, gpu.place()}, 0, stream), InvalidArgument);
  EXPECT_THROW(stream.record(Event(machine.gpu(1))), InvalidArgument);
  EXPECT_THROW(stream.call(nullptr), InvalidArgument);
  driver.allow_pageable(pageable.data(), pageable.size());
  copy(memory.view(), host, stream, {.allow_pageable = true});
  stream.synchronize();
  driver.forget_pageable(pageable.data());
  EXPECT_EQ(bytes_of(memory.view())[63], 3);
}

TEST_P(CudaStream, ABorrowedStreamIsUsedExactlyAndNeverDestroyed) {
  for (const auto native :
       {driver.foreign_stream(), cuda::legacy_stream, cuda::per_thread_stream}) {
    driver.allow_stream(cuda::legacy_stream);
    driver.allow_stream(cuda::per_thread_stream);
    const PinnedBuffer host(gpu, 64);
    const Event event(gpu);
    {
      const Stream stream = borrow_native(gpu, native);
      EXPECT_FALSE(stream.owned());
      EXPECT_EQ(stream.native(), native);
      const std::uint64_t made = driver.calls("stream_create");
      fill(host.view(), 4, stream);
      stream.record(event);
      stream.wait(event);
      stream.call([&] { driver.host_read(host.view().data, 64); });
      stream.notify([] {});
      stream.synchronize();
      EXPECT_TRUE(stream.done());
      EXPECT_EQ(driver.calls("stream_create"), made);
    }
    EXPECT_EQ(bytes_of(host.view())[63], 4);
    EXPECT_EQ(driver.calls("stream_destroy"), 0U);
  }
}

TEST_P(CudaStream, ADefaultStreamOfAnotherDeviceIsReachedOnThatDevice) {
  const Device other = machine.gpu(1);
  driver.allow_stream(cuda::legacy_stream, 1);
  driver.allow_stream(cuda::per_thread_stream, 1);
  for (const auto native : {cuda::legacy_stream, cuda::per_thread_stream}) {
    const Stream stream = borrow_native(other, native);
    const DeviceBuffer memory(other, 64);
    const Event event(other);
    fill(memory.view(), 1, stream);
    stream.record(event);
    stream.wait(event);
    stream.call([] {});
    stream.notify([] {});
    stream.synchronize();
    EXPECT_TRUE(stream.done());
  }
  int current = -1;
  driver.get_device(&current);
  EXPECT_EQ(current, 0) << "the caller's current device is put back";
}

TEST_P(CudaStream, CapturedStreamsTakeWorkButRefuseToWait) {
  const auto native = driver.foreign_stream();
  const Stream stream = borrow_native(gpu, native);
  const DeviceBuffer memory(gpu, 64);
  const Event event(gpu);
  driver.set_capturing(native, true);
  fill(memory.view(), 1, stream);
  stream.record(event);
  stream.wait(event);
  EXPECT_THROW(stream.synchronize(), Unsupported);
  EXPECT_THROW(stream.call([] {}), Unsupported);
  EXPECT_THROW(stream.notify([] {}), Unsupported);
  EXPECT_THROW(stream.done(), Unsupported);
  driver.set_capturing(native, false);
  stream.synchronize();
  EXPECT_EQ(bytes_of(memory.view())[0], 0xCD) << "captured, not run";
}

TEST_P(CudaStream, CapturedEventsRefuseToBeWaitedFor) {
  const auto native = driver.foreign_stream();
  const Stream stream = borrow_native(gpu, native);
  for (const Waiting waiting : {Waiting::poll, Waiting::spin, Waiting::block}) {
    const Event event(gpu, {.waiting = waiting});
    driver.set_capturing(native, true);
    stream.record(event);
    driver.set_capturing(native, false);
    // Also after the capture: the event marks a point of the graph, not of a stream.
    for (const auto& [name, call] : std::vector<std::pair<std::string, std::function<void()>>>{
             {"Event::synchronize", [&] { event.synchronize(); }},
             {"Event::done", [&] { (void)event.done(); }}}) {
      const auto failure = failure_of(call);
      EXPECT_TRUE(is<Unsupported>(failure)) << name << ": " << text(failure);
      EXPECT_NE(text(failure).find(name), std::string::npos) << text(failure);
    }
    stream.record(event);
    event.synchronize();
    EXPECT_TRUE(event.done());
  }
}

// CUDA forbids looking at any event while another stream is captured in global mode.
TEST_P(CudaStream, AnEventThatACaptureElsewhereForbidsToLookAtSaysSo) {
  const Stream stream(gpu);
  const Event event(gpu);
  stream.record(event);
  stream.synchronize();
  driver.fail_call(1, capture_unsupported, {"event_query"});
  const auto failure = failure_of([&] { (void)event.done(); });
  EXPECT_TRUE(is<Unsupported>(failure)) << text(failure);
  EXPECT_NE(text(failure).find("Event::done"), std::string::npos) << text(failure);
  driver.fail_call(1, capture_unsupported, {"event_query"});
  EXPECT_TRUE(is<Unsupported>(failure_of([&] { event.synchronize(); })));
  driver.disarm();
  EXPECT_TRUE(event.done());
}

}  // namespace
}  // namespace ps::test
