// Sessions on a GPU: streams that wait for items which are enqueued, and for those that are not.
#include "penstock/host/session.h"

#include <atomic>
#include <cstring>
#include <latch>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "gpu/gate.h"
#include "gpu/gpu_test.h"
#include "penstock/base/error.h"
#include "penstock/base/units.h"
#include "penstock/host/buffer.h"
#include "penstock/host/cuda.h"
#include "support/failure_of.h"

namespace ps::test {
namespace {

constexpr std::size_t bytes = 256 * KiB + 8;

struct Load {
  MemoryView device, host;
};

class SessionGpu : public GpuTest {};

TEST_F(SessionGpu, AStreamWaitsForItemsWithoutTheHost) {
  constexpr std::uint64_t items = 24;
  const PinnedBuffer in(gpu, items * bytes), out(gpu, items * bytes);
  const DeviceBuffer data(gpu, items * bytes);
  for (std::uint64_t i = 0; i < items; ++i) {
    std::memset(in.view().data + i * bytes, static_cast<int>(i + 1), bytes);
  }
  const CallersStream callers;
  const Stream stream = borrow(gpu, callers.get());
  for (const bool held : {false, true}) {
    std::memset(out.view().data, poison, items * bytes);
    fill(data.view(), poison, stream);
    stream.synchronize();
    std::latch door(1);
    Session session({.device = gpu});
    const StageId read = session.host_stage("read", {}, [&](Item&) {
      if (held) door.wait();
    });
    session.stage("upload", {.after = {read}}, [](Item& item) {
      copy(item.payload<Load>().device, item.payload<Load>().host, item.stream());
    });
    for (std::uint64_t i = 0; i < items; ++i) {
      const MemoryView there = data.view().sub(i * bytes, bytes);
      session.push(Load{there, in.view().sub(i * bytes, bytes)}).join(stream);
      copy(out.view().sub(i * bytes, bytes), there, stream);
    }
    if (held) {
      EXPECT_FALSE(stream.done()) << "nothing is uploaded yet";
    }
    door.count_down();
    stream.synchronize();
    EXPECT_EQ(std::memcmp(out.view().data, in.view().data, items * bytes), 0) << "held: " << held;
    session.drain();
  }
}

TEST_F(SessionGpu, ItemsFailAndAreCancelledAloneAndStreamsGoOn) {
  const DeviceBuffer data(gpu, bytes);
  const Stream stream(gpu);
  std::latch door(1);
  Session session({.device = gpu, .in_flight = 8});
  const StageId read = session.host_stage("read", {}, [&](Item& item) {
    door.wait();
    if (item.index() == 1) throw std::domain_error("one");
  });
  session.stage("fill", {.after = {read}},
                [&](Item& item) { fill(data.view(), 3, item.stream()); });
  std::vector<Ticket> tickets;
  for (int i = 0; i < 4; ++i) {
    tickets.push_back(session.push(i));
    tickets.back().join(stream);
  }
  EXPECT_TRUE(tickets[2].cancel());
  door.count_down();
  stream.synchronize();
  EXPECT_TRUE(all_are(look(data.view()), 3));
  EXPECT_EQ(failure_of([&] { tickets[0].wait(); }), nullptr);
  EXPECT_TRUE(is<std::domain_error>(failure_of([&] { tickets[1].wait(); })));
  EXPECT_TRUE(is<Cancelled>(failure_of([&] { tickets[2].wait(); })));
  EXPECT_EQ(failure_of([&] { tickets[3].wait(); }), nullptr);
}

// A session of device stages enqueues in push(): an event is there for join() to wait for.
TEST_F(SessionGpu, PushEnqueuesWhatNothingHoldsBack) {
  const DeviceBuffer data(gpu, bytes);
  const CallersStream callers;
  const Stream stream = borrow(gpu, callers.get());
  Session session({.device = gpu});
  session.stage("fill", {.stream = stream}, [&](Item& item) {
    fill(data.view(), static_cast<std::uint8_t>(item.payload<int>()), item.stream());
  });
  session.push(1).wait();
  Ticket ticket = session.push(2);
  {
    Gate gate(callers.get());
    ticket = session.push(3);
    EXPECT_FALSE(ticket.done());
    gate.open();
  }
  stream.synchronize();
  EXPECT_TRUE(all_are(look(data.view()), 3));
  ticket.wait();
}

TEST_F(SessionGpu, ManySessionsComeAndGoAtAnyTime) {
  const Stream stream(gpu);
  for (unsigned seed = 1; seed <= 50; ++seed) {
    std::minstd_rand random(seed);
    std::vector<Ticket> tickets;
    {
      const DeviceBuffer data(gpu, bytes);
      Session session({.device = gpu, .in_flight = 1 + random() % 6});
      const StageId read = session.host_stage("read", {}, [](Item&) {});
      session.stage("fill", {.after = {read}},
                    [&](Item& item) { fill(data.view(), 1, item.stream()); });
      for (std::uint64_t i = 0; i < random() % 12; ++i) {
        tickets.push_back(session.push(i));
        if (random() % 2 == 0) tickets[random() % tickets.size()].join(stream);
        if (random() % 5 == 0) tickets[random() % tickets.size()].cancel();
      }
    }
    for (const Ticket& ticket : tickets) EXPECT_TRUE(ticket.done()) << "seed " << seed;
    stream.synchronize();
  }
}

}  // namespace
}  // namespace ps::test
