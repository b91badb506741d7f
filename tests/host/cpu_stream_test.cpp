#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/host/buffer.h"
#include "penstock/host/stream.h"

namespace {

using namespace std::chrono_literals;

TEST(CpuDevice, IsAlwaysThereAndDescribesItself) {
  const ps::Device cpu = ps::Device::cpu();
  EXPECT_EQ(cpu.kind(), ps::DeviceKind::cpu);
  EXPECT_EQ(cpu.name(), "cpu");
  EXPECT_GT(cpu.capabilities().memory_bytes, 0U);
  EXPECT_GT(cpu.capabilities().multiprocessors, 0);
  EXPECT_EQ(ps::Device::all().front(), cpu);
  EXPECT_EQ(ps::Device::parse("cpu"), cpu);
  EXPECT_THROW(ps::Device::parse("tpu"), ps::InvalidArgument);
  EXPECT_THROW(ps::Device::parse("cuda:x"), ps::InvalidArgument);
  EXPECT_THROW(ps::Device::cuda(999), ps::InvalidArgument);
}

TEST(CpuStream, RunsInOrder) {
  const ps::Stream stream(ps::Device::cpu());
  std::vector<int> seen;
  for (int i = 0; i < 100; ++i) stream.call([&seen, i] { seen.push_back(i); });
  stream.synchronize();
  std::vector<int> expected(100);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(seen, expected);
  EXPECT_TRUE(stream.done());
}

// Two streams that each need the other to have started can only finish side by side.
TEST(CpuStream, StreamsRunBesideEachOther) {
  const ps::Stream a(ps::Device::cpu()), b(ps::Device::cpu());
  std::atomic<int> arrived{0};
  const auto meet = [&arrived] {
    ++arrived;
    while (arrived < 2) std::this_thread::yield();
  };
  a.call(meet);
  b.call(meet);
  a.synchronize();
  b.synchronize();
  EXPECT_EQ(arrived, 2);
}

TEST(CpuStream, EventsOrderAcrossStreams) {
  const ps::Stream a(ps::Device::cpu()), b(ps::Device::cpu());
  const ps::Event event(ps::Device::cpu());
  EXPECT_TRUE(event.done());  // never recorded
  for (int round = 0; round < 50; ++round) {
    int value = 0;
    a.call([&value] {
      std::this_thread::sleep_for(50us);
      value = 1;
    });
    a.record(event);
    b.wait(event);
    int seen = -1;
    b.call([&] { seen = value; });
    b.synchronize();
    ASSERT_EQ(seen, 1);
  }
}

TEST(CpuStream, WaitKeepsThePointOfTheTimeItWasCalled) {
  const ps::Stream a(ps::Device::cpu()), b(ps::Device::cpu());
  const ps::Event event(ps::Device::cpu());
  a.record(event);
  b.wait(event);
  std::atomic<bool> go{false};
  a.call([&go] {
    while (!go) std::this_thread::yield();
  });
  a.record(event);  // moves the event behind a function that waits for us
  b.synchronize();  // must not wait for the new point
  EXPECT_FALSE(event.done());
  go = true;
  event.synchronize();
  EXPECT_TRUE(event.done());
}

TEST(CpuStream, TimesBetweenEvents) {
  const ps::Stream stream(ps::Device::cpu());
  const ps::Event begin(ps::Device::cpu(), {.timing = true}),
      end(ps::Device::cpu(), {.timing = true});
  EXPECT_THROW(ps::Event::seconds_between(begin, end), ps::InvalidArgument);
  stream.record(begin);
  stream.call([] { std::this_thread::sleep_for(2ms); });
  stream.record(end);
  stream.synchronize();
  EXPECT_GE(ps::Event::seconds_between(begin, end), 0.002);
  const ps::Event untimed(ps::Device::cpu());
  stream.record(untimed);
  stream.synchronize();
  EXPECT_THROW(ps::Event::seconds_between(begin, untimed), ps::InvalidArgument);
}

TEST(CpuStream, AnExceptionComesOutOfSynchronizeOnce) {
  const ps::Stream stream(ps::Device::cpu());
  bool later = false;
  stream.call([] { throw std::runtime_error("first"); });
  stream.call([] { throw std::runtime_error("second"); });
  stream.call([&later] { later = true; });
  try {
    stream.synchronize();
    FAIL() << "no error";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "first");
  }
  EXPECT_TRUE(later);
  EXPECT_NO_THROW(stream.synchronize());
}

TEST(CpuStream, WorkSurvivesTheLastHandle) {
  std::atomic<bool> ran{false};
  {
    const ps::Stream stream(ps::Device::cpu());
    stream.call([&ran] {
      std::this_thread::sleep_for(5ms);
      ran = true;
    });
  }
  while (!ran) std::this_thread::yield();
}

TEST(Copy, MovesBytesAndRefusesNonsense) {
  const ps::Device cpu = ps::Device::cpu();
  const ps::Stream stream(cpu);
  const ps::PinnedBuffer a(cpu, 1000), b(cpu, 1000);
  ps::fill(a.view(), 7, stream);
  ps::fill(b.view(), 0, stream);
  ps::copy(b.view().sub(1, 998), a.view().sub(0, 998), stream);
  stream.synchronize();
  EXPECT_EQ(b.view().data[0], std::byte{0});
  EXPECT_EQ(b.view().data[1], std::byte{7});
  EXPECT_EQ(b.view().data[999], std::byte{0});
  EXPECT_THROW(ps::copy(b.view(), a.view().sub(0, 1), stream), ps::InvalidArgument);
  EXPECT_THROW(ps::copy({nullptr, 4, {}}, a.view().sub(0, 4), stream), ps::InvalidArgument);
  const ps::MemoryView gpu{a.view().data, 4, {ps::Memory::device, 0}};
  EXPECT_THROW(ps::copy(gpu, a.view().sub(0, 4), stream), ps::InvalidArgument);
  EXPECT_THROW(ps::PinnedBuffer(cpu, 0), ps::InvalidArgument);
  EXPECT_THROW(ps::PinnedBuffer(cpu, ~std::size_t{0}), ps::InvalidArgument);
}

}  // namespace
