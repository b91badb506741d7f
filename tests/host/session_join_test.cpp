// Streams that wait for items of a session: enqueued already or not, on the CPU and the fake GPU.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/host/buffer.h"
#include "penstock/host/session.h"
#include "support/expect_clean.h"
#include "support/failure_of.h"
#include "support/fake_machine.h"
#include "support/watchdog.h"

namespace ps::test {
namespace {

struct JoinSetup {
  const char* name;
  bool gpu = false;
  bool stream_wait_value = true;

  friend std::ostream& operator<<(std::ostream& out, const JoinSetup& setup) {
    return out << setup.name;
  }
};

class Joins : public testing::TestWithParam<JoinSetup> {
 protected:
  void TearDown() override {
    if (machine) {
      EXPECT_TRUE(is_clean(machine->driver()));
    }
  }

  Device device() const { return GetParam().gpu ? machine->gpu() : Device::cpu(); }
  // Whether join() returns although the item has not reached the device.
  bool never_blocks() const { return GetParam().stream_wait_value; }

  // A kernel that writes, or reads and checks, one number.
  void write(const Stream& stream, MemoryView at, std::uint64_t value) {
    run(stream, {}, {{at.data, at.bytes}}, [p = at.as<std::uint64_t>(), value] { *p = value; });
  }
  void expect(const Stream& stream, MemoryView at, std::uint64_t value) {
    run(stream, {{at.data, at.bytes}}, {}, [this, p = at.as<std::uint64_t>(), value] {
      ++checked;
      wrong += *p != value;
    });
  }
  void run(const Stream& stream, std::vector<Bytes> reads, std::vector<Bytes> writes,
           std::function<void()> function) {
    if (machine) {
      launch(machine->driver(), stream, std::move(reads), std::move(writes), std::move(function));
    } else {
      stream.call(std::move(function));
    }
  }

  Watchdog watchdog{testing::UnitTest::GetInstance()->current_test_info()->name()};
  std::optional<FakeMachine> machine =
      GetParam().gpu
          ? std::optional<FakeMachine>(
                std::in_place, FakeOptions{.stream_wait_value = GetParam().stream_wait_value})
          : std::nullopt;
  std::atomic<int> checked{0}, wrong{0};
};

INSTANTIATE_TEST_SUITE_P(Devices, Joins,
                         testing::Values(JoinSetup{.name = "Cpu"},
                                         JoinSetup{.name = "FakeGpu", .gpu = true},
                                         JoinSetup{.name = "FakeGpuWithoutWaitValue",
                                                   .gpu = true,
                                                   .stream_wait_value = false}),
                         [](const auto& tested) { return std::string(tested.param.name); });

struct Piece {
  MemoryView at;
  std::uint64_t value = 0;
};

TEST_P(Joins, AStreamWaitsForWhatIsEnqueued) {
  const DeviceBuffer buffer(device(), 16 * 8);
  const Stream stream(device()), other(device());
  Session session({.device = device()});
  session.stage("device", {}, [&](Item& item) {
    write(item.stream(), item.payload<Piece>().at, item.payload<Piece>().value);
  });
  for (std::uint64_t round = 0; round < 20; ++round) {
    for (std::uint64_t i = 0; i < 16; ++i) {
      const Piece piece{buffer.view().sub(i * 8, 8), 100 * round + i};
      const Ticket ticket = session.push(piece);
      ticket.join(stream);
      session.join(ticket, other);
      expect(stream, piece.at, piece.value);
      expect(other, piece.at, piece.value);
    }
    stream.synchronize();
    other.synchronize();
  }
  EXPECT_EQ(checked, 640);
  EXPECT_EQ(wrong, 0);
}

// The host stage has not begun when streams are made to wait.
TEST_P(Joins, AStreamWaitsForWhatIsNotEnqueuedYet) {
  if (!never_blocks()) GTEST_SKIP() << "join() waits for the item, which waits for this test";
  const DeviceBuffer buffer(device(), 8 * 8);
  const std::vector<Stream> streams{Stream(device()), Stream(device()), Stream(device())};
  std::latch door(1);
  Session session({.device = device()});
  const StageId host = session.host_stage("host", {}, [&](Item&) { door.wait(); });
  session.stage("device", {.after = {host}}, [&](Item& item) {
    write(item.stream(), item.payload<Piece>().at, item.payload<Piece>().value);
  });
  for (std::uint64_t i = 0; i < 8; ++i) {
    const Piece piece{buffer.view().sub(i * 8, 8), 7 + i};
    const Ticket ticket = session.push(piece);
    for (const Stream& stream : streams) {
      ticket.join(stream);
      expect(stream, piece.at, piece.value);
    }
  }
  EXPECT_EQ(checked, 0);
  door.count_down();
  for (const Stream& stream : streams) stream.synchronize();
  EXPECT_EQ(checked, 24);
  EXPECT_EQ(wrong, 0);
}

// Items are joined at any time, in any order, while host stages take their time.
TEST_P(Joins, AtRandomTimes) {
  constexpr std::size_t pieces = 32;
  for (unsigned seed = 1; seed <= 20; ++seed) {
    watchdog.step("seed " + std::to_string(seed));
    std::minstd_rand random(seed);
    const DeviceBuffer buffer(device(), pieces * 8);
    const std::vector<Stream> streams{Stream(device()), Stream(device())};
    {
      Session session({.device = device(), .in_flight = pieces});
      const StageId host = session.host_stage("host", {}, [&, pause = random() % 200](Item&) {
        std::this_thread::sleep_for(std::chrono::microseconds(pause));
      });
      const StageId first = session.stage("first", {.after = {host}}, [&](Item& item) {
        write(item.stream(), item.payload<Piece>().at, 1);
      });
      session.stage("left", {.after = {first}}, [&](Item& item) {
        write(item.stream(), item.payload<Piece>().at, item.payload<Piece>().value);
      });
      session.host_stage("right", {.after = {first}}, [](Item&) {});
      std::vector<std::pair<Ticket, Piece>> pushed;
      for (std::uint64_t i = 0; i < pieces; ++i) {
        const Piece piece{buffer.view().sub(i * 8, 8), 1000 + i};
        pushed.emplace_back(session.push(piece), piece);
        const auto& [ticket, joined] = pushed[random() % pushed.size()];
        const Stream& stream = streams[random() % 2];
        ticket.join(stream);
        expect(stream, joined.at, joined.value);
        if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
      // Some sessions go while their items are in flight: streams must not wait forever.
      if (random() % 2 == 0) {
        session.drain();
      } else {
        wrong -= pieces;  // what was cancelled is not there
      }
    }
    for (const Stream& stream : streams) stream.synchronize();
    EXPECT_LE(wrong, 0);
    wrong = 0;
  }
}

TEST_P(Joins, StreamsGoOnWhenAnItemFailsOrIsCancelled) {
  if (!never_blocks()) GTEST_SKIP() << "join() waits for the item, which waits for this test";
  const Stream stream(device());
  std::latch door(1);
  Session session({.device = device()});
  const StageId host = session.host_stage("host", {}, [&](Item& item) {
    door.wait();
    if (item.index() == 0) throw std::domain_error("zero");
  });
  session.stage("device", {.after = {host}}, [](Item&) {});
  const Ticket failed = session.push(0), cancelled = session.push(1), well = session.push(2);
  for (const Ticket& ticket : {failed, cancelled, well}) ticket.join(stream);
  EXPECT_TRUE(cancelled.cancel());
  door.count_down();
  stream.synchronize();
  EXPECT_TRUE(is<std::domain_error>(failure_of([&] { failed.wait(); })));
  EXPECT_TRUE(is<Cancelled>(failure_of([&] { cancelled.wait(); })));
  well.wait();
}

TEST_P(Joins, AStreamOfTheCpuWaitsForAnItem) {
  const Stream stream(Device::cpu());
  std::latch door(1);
  std::atomic<bool> ran{false};
  std::atomic<int> early{0};
  Session session({.device = device()});
  const StageId host = session.host_stage("host", {}, [&](Item&) { door.wait(); });
  session.stage("device", {.after = {host}},
                [&](Item& item) { run(item.stream(), {}, {}, [&] { ran = true; }); });
  session.push(0).join(stream);
  stream.call([&] { early += ran ? 0 : 1; });
  door.count_down();
  stream.synchronize();
  EXPECT_EQ(early, 0);
  session.drain();
}

TEST_P(Joins, RefusesAStreamThatWouldWaitForItself) {
  const Stream own(device());
  std::latch door(1);
  Session session({.device = device()});
  const StageId host = session.host_stage("host", {}, [&](Item&) { door.wait(); });
  session.stage("device", {.after = {host}, .stream = own}, [](Item&) {});
  const Ticket ticket = session.push(0);
  EXPECT_THROW(ticket.join(own), InvalidArgument);
  door.count_down();
  ticket.wait();
  ticket.join(own);
}

TEST_P(Joins, RefusesAStreamThatIsBeingCaptured) {
  if (!machine) GTEST_SKIP() << "only GPUs capture";
  const cuda::StreamHandle handle = machine->driver().foreign_stream();
  const Stream stream = borrow_native(device(), handle);
  std::latch door(1);
  Session session({.device = device()});
  session.host_stage("host", {}, [&](Item&) { door.wait(); });
  const Ticket ticket = session.push(0);
  machine->driver().set_capturing(handle, true);
  EXPECT_THROW(ticket.join(stream), Unsupported);
  machine->driver().set_capturing(handle, false);
  door.count_down();
  ticket.wait();
}

}  // namespace
}  // namespace ps::test
