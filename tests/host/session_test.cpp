// Sessions on the CPU: order, declined items, bounds, failures, cancellation, misuse.
#include "penstock/host/session.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <latch>
#include <map>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "penstock/base/error.h"
#include "support/failure_of.h"
#include "support/tiny_session.h"
#include "support/watchdog.h"

namespace ps::test {
namespace {

const Device cpu = Device::cpu();

// Holds back whoever waits for it until it is opened.
class Door {
 public:
  void open() { latch_.count_down(); }
  void wait() const { latch_.wait(); }

 private:
  std::latch latch_{1};
};

class Sessions : public testing::Test {
 protected:
  Watchdog watchdog{testing::UnitTest::GetInstance()->current_test_info()->name()};
};

TEST_F(Sessions, EveryItemGoesThroughItsStagesInOrder) {
  for (const std::size_t depth : {1, 2, 5}) {
    for (const std::size_t in_flight : {1, 3, 32}) {
      for (const bool host_stages : {true, false}) {
        TinySession tiny(cpu, {.depth = depth, .in_flight = in_flight, .host_stages = host_stages});
        tiny.run_well(100);
        EXPECT_EQ(tiny.session.pushed(), 100U);
        EXPECT_EQ(tiny.session.done(), 100U);
      }
    }
  }
}

TEST_F(Sessions, ThreadsAndStreamsAreKept) {
  Session session({.device = cpu});
  std::mutex mutex;
  std::map<std::thread::id, int> threads;
  session.host_stage("host", {}, [&](Item&) {
    const std::lock_guard lock(mutex);
    ++threads[std::this_thread::get_id()];
  });
  session.stage("device", {}, [](Item&) {});
  session.push(0).wait();
  const std::uint64_t allocations = cpu.allocations();
  for (int i = 0; i < 100; ++i) session.push(i).wait();
  EXPECT_EQ(threads.size(), 1U);
  EXPECT_EQ(cpu.allocations(), allocations);
}

TEST_F(Sessions, StagesPassOverItemsThatDoNotNeedThem) {
  Session session({.device = cpu});
  std::vector<int> odd, all;
  const StageId first = session.host_stage(
      "odd", {}, [&](Item& item) { odd.push_back(item.payload<int>()); },
      [](const Payload& payload) { return payload.get<int>() % 2 == 1; });
  const StageId second = session.stage(
      "none", {.after = {first}}, [](Item&) { FAIL() << "no item needs this"; },
      [](const Payload&) { return false; });
  session.host_stage("all", {.after = {second}},
                     [&](Item& item) { all.push_back(item.payload<int>()); });
  for (int i = 0; i < 500; ++i) session.push(i);
  session.drain();
  ASSERT_EQ(odd.size(), 250U);
  ASSERT_EQ(all.size(), 500U);
  for (int i = 0; i < 250; ++i) EXPECT_EQ(odd[static_cast<std::size_t>(i)], 2 * i + 1);
  for (int i = 0; i < 500; ++i) EXPECT_EQ(all[static_cast<std::size_t>(i)], i);
}

// An item that no stage needs is done when the items before it are, and not sooner.
TEST_F(Sessions, AnItemThatNoStageNeedsWaitsForItsTurn) {
  Session session({.device = cpu});
  Door door;
  session.host_stage(
      "host", {}, [&](Item&) { door.wait(); },
      [](const Payload& payload) { return payload.get<bool>(); });
  const Ticket alone = session.push(false);
  alone.wait();
  const Ticket held = session.push(true), behind = session.push(false);
  EXPECT_FALSE(held.done());
  EXPECT_FALSE(behind.done());
  door.open();
  behind.wait();
  EXPECT_TRUE(held.done());
}

TEST_F(Sessions, ThePayloadIsDroppedBeforeTheTicketIsDone) {
  Session session({.device = cpu});
  session.stage("device", {}, [](Item&) {});
  auto object = std::make_shared<int>(5);
  const std::weak_ptr<int> watched = object;
  const Ticket ticket = session.push(std::move(object));
  ticket.wait();
  EXPECT_TRUE(watched.expired());
}

TEST_F(Sessions, PushFailsOrWaitsWhenTooManyItemsAreInFlight) {
  for (const WhenExhausted when_full : {WhenExhausted::fail, WhenExhausted::wait}) {
    Session session({.device = cpu, .in_flight = 3, .when_full = when_full});
    Door door;
    session.host_stage("host", {}, [&](Item&) { door.wait(); });
    for (int i = 0; i < 3; ++i) session.push(i);
    if (when_full == WhenExhausted::fail) {
      EXPECT_THROW(session.push(3), Exhausted);
      EXPECT_EQ(session.pushed(), 3U);
      door.open();
      session.drain();
    } else {
      std::atomic<bool> pushed{false};
      const std::jthread pusher([&] {
        session.push(3);
        pushed = true;
      });
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      EXPECT_FALSE(pushed);
      door.open();
    }
    session.push(4).wait();
  }
}

TEST_F(Sessions, AnItemThatFailsEndsAlone) {
  for (const std::string& stage : TinySession::stages) {
    TinySession tiny(cpu, {});
    tiny.hook = [&](const std::string& at, Item& item) {
      if (at == stage && item.payload<TinyLoad>().value % 4 == 1) throw std::out_of_range("one");
    };
    std::vector<TinySession::Pushed> pushed;
    for (std::uint64_t i = 0; i < 40; ++i) pushed.push_back(tiny.push(i));
    for (std::uint64_t i = 0; i < 40; ++i) {
      if (i % 4 != 1) {
        tiny.check(pushed[i]);
        continue;
      }
      try {
        pushed[i].ticket.wait();
        ADD_FAILURE() << stage << ", item " << i << " was not reported";
      } catch (const PipelineError& error) {
        EXPECT_EQ(error.stage(), stage);
        EXPECT_EQ(error.item(), i);
        EXPECT_TRUE(is<std::out_of_range>(error.cause()));
      }
      EXPECT_TRUE(is<PipelineError>(pushed[i].ticket.error()));
      EXPECT_EQ(pushed[i].load->result, 0U) << "a later stage saw the item";
    }
    tiny.session.drain();
    tiny.hook = nullptr;
    tiny.run_well(10);
  }
}

TEST_F(Sessions, AHostFunctionThatThrowsEndsItsItem) {
  Session session({.device = cpu});
  session.stage("device", {}, [](Item& item) {
    item.stream().call([value = item.payload<int>()] {
      if (value == 3) throw std::domain_error("three");
    });
  });
  std::vector<Ticket> tickets;
  for (int i = 0; i < 10; ++i) tickets.push_back(session.push(i));
  for (int i = 0; i < 10; ++i) {
    const auto failure = failure_of([&] { tickets[static_cast<std::size_t>(i)].wait(); });
    EXPECT_EQ(is<std::domain_error>(failure), i == 3) << text(failure);
  }
}

TEST_F(Sessions, CompletionsComeInAnyOrderAndMayFailOrBeDropped) {
  Session session({.device = cpu, .in_flight = 16});
  std::mutex mutex;
  std::vector<std::jthread> threads;
  std::mt19937 random(7);
  const StageId begin = session.async_stage("begin", {}, [&](Item& item, const Completion& done) {
    const int value = item.payload<int>();
    if (value % 10 == 3) throw std::domain_error("thrown");
    if (value % 10 == 5) return;  // dropped
    const std::lock_guard lock(mutex);
    threads.emplace_back([value, done, pause = random() % 300] {
      std::this_thread::sleep_for(std::chrono::microseconds(pause));
      done(value % 10 == 7 ? std::make_exception_ptr(std::length_error("told")) : nullptr);
    });
  });
  std::vector<int> seen;
  session.host_stage("collect", {.after = {begin}},
                     [&](Item& item) { seen.push_back(item.payload<int>()); });
  std::vector<Ticket> tickets;
  for (int i = 0; i < 200; ++i) tickets.push_back(session.push(i));
  std::vector<int> expected;
  for (int i = 0; i < 200; ++i) {
    const auto failure = failure_of([&] { tickets[static_cast<std::size_t>(i)].wait(); });
    const int kind = i % 10;
    EXPECT_EQ(failure != nullptr, kind == 3 || kind == 5 || kind == 7) << i;
    if (kind == 3) {
      EXPECT_TRUE(is<std::domain_error>(failure)) << text(failure);
    }
    if (kind == 5) {
      EXPECT_TRUE(is<std::logic_error>(failure)) << text(failure);
    }
    if (kind == 7) {
      EXPECT_TRUE(is<std::length_error>(failure)) << text(failure);
    }
    if (!failure) expected.push_back(i);
  }
  session.drain();
  EXPECT_EQ(seen, expected);
}

TEST_F(Sessions, ACancelledItemIsPassedOverAndTheOthersGoOn) {
  Session session({.device = cpu});
  Door door, begun;
  const StageId first = session.host_stage("first", {}, [&](Item& item) {
    if (item.index() > 0) return;
    begun.open();
    door.wait();
    EXPECT_TRUE(item.stopping());
  });
  std::vector<std::uint64_t> seen;
  session.host_stage("second", {.after = {first}},
                     [&](Item& item) { seen.push_back(item.index()); });
  std::vector<Ticket> tickets;
  for (int i = 0; i < 4; ++i) tickets.push_back(session.push(i));
  begun.wait();
  EXPECT_TRUE(tickets[0].cancel());
  EXPECT_TRUE(tickets[0].cancel()) << "again";
  EXPECT_TRUE(tickets[2].cancel());
  EXPECT_FALSE(tickets[2].done());
  door.open();
  session.drain();
  EXPECT_EQ(seen, (std::vector<std::uint64_t>{1, 3}));
  for (int i = 0; i < 4; ++i) {
    const auto failure = failure_of([&] { tickets[static_cast<std::size_t>(i)].wait(); });
    EXPECT_EQ(is<Cancelled>(failure), i % 2 == 0) << text(failure);
  }
  EXPECT_FALSE(tickets[1].cancel()) << "it is done";
}

TEST_F(Sessions, CancellingEverythingLeavesTheSessionUsable) {
  Session session({.device = cpu});
  Door door, begun;
  session.host_stage("host", {}, [&](Item& item) {
    if (item.index() > 0) return;
    begun.open();
    door.wait();
  });
  std::vector<Ticket> tickets;
  for (int i = 0; i < 20; ++i) tickets.push_back(session.push(i));
  begun.wait();
  session.cancel();
  door.open();
  EXPECT_EQ(failure_of([&] { tickets[0].wait(); }), nullptr) << "its only stage had started";
  for (int i = 1; i < 20; ++i) {
    EXPECT_TRUE(is<Cancelled>(failure_of([&] { tickets[static_cast<std::size_t>(i)].wait(); })));
  }
  session.push(0).wait();
}

TEST_F(Sessions, CancellationAtRandomPoints) {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    const std::string here = "seed " + std::to_string(seed);
    watchdog.step(here);
    std::minstd_rand random(seed);
    TinySession tiny(cpu, {.depth = 1 + random() % 3,
                           .in_flight = 1 + random() % 8,
                           .host_stages = random() % 3 != 0,
                           .host_calls = random() % 2 == 0});
    std::vector<TinySession::Pushed> pushed;
    for (std::uint64_t i = 0; i < 12; ++i) {
      pushed.push_back(tiny.push(i, random() % 3 == 0));
      if (random() % 3 == 0) pushed[random() % pushed.size()].ticket.cancel();
      if (random() % 10 == 0) tiny.session.cancel();
    }
    for (const auto& item : pushed) {
      const auto failure = failure_of([&] { tiny.check(item); });
      EXPECT_TRUE(!failure || is<Cancelled>(failure)) << here << ": " << text(failure);
    }
    tiny.run_well(5);
    ASSERT_FALSE(HasFailure()) << here;
  }
}

TEST_F(Sessions, DestroyingASessionEndsEveryTicket) {
  for (unsigned seed = 1; seed <= 300; ++seed) {
    watchdog.step("seed " + std::to_string(seed));
    std::minstd_rand random(seed);
    std::vector<TinySession::Pushed> pushed;
    {
      TinySession tiny(cpu, {.depth = 1 + random() % 3,
                             .in_flight = 8,
                             .host_stages = random() % 3 != 0,
                             .host_calls = random() % 2 == 0});
      for (std::uint64_t i = 0; i < random() % 9; ++i) pushed.push_back(tiny.push(i, i % 3 == 0));
      if (random() % 3 == 0) tiny.session.drain();
    }
    for (const auto& item : pushed) {
      EXPECT_TRUE(item.ticket.done());
      const auto failure = failure_of([&] { item.ticket.wait(); });
      EXPECT_TRUE(!failure || is<Cancelled>(failure)) << text(failure);
      if (!failure) {
        EXPECT_NE(item.load->result, 0U);
      }
      EXPECT_FALSE(item.ticket.cancel());
      item.ticket.join(Stream(cpu));
      EXPECT_EQ(item.load.use_count(), 1);
    }
  }
}

TEST_F(Sessions, ManyThreadsPush) {
  TinySession tiny(cpu, {.depth = 3, .in_flight = 10});
  std::vector<std::jthread> threads;
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::vector<TinySession::Pushed> pushed;
      for (std::uint64_t i = 0; i < 200; ++i) pushed.push_back(tiny.push(1000 * t + i, i % 5 == 0));
      for (const auto& item : pushed) tiny.check(item);
    });
  }
  threads.clear();
  EXPECT_EQ(tiny.session.done(), 800U);
}

// Counts the objects that exist, so that a payload that stays behind is seen.
struct Counted {
  explicit Counted(std::atomic<int>& counter) : alive(counter) { ++alive; }
  Counted(const Counted& other) : alive(other.alive) { ++alive; }
  Counted& operator=(const Counted&) = delete;
  ~Counted() { --alive; }
  std::atomic<int>& alive;
};

TEST_F(Sessions, AHundredThousandItemsLeaveNothingBehind) {
  std::atomic<int> alive{0}, most{0};
  Session session({.device = cpu, .in_flight = 32});
  const RingId ring = session.ring("ring", {.memory = Memory::device, .bytes = 8});
  std::uint64_t sum = 0;
  const StageId device = session.stage("device", {.uses = {ring}}, [&](Item& item) {
    auto* const slot = item.slot(ring).as<std::uint64_t>();
    item.stream().call([slot, index = item.index()] { *slot = index; });
  });
  session.host_stage("host", {.after = {device}, .uses = {ring}},
                     [&](Item& item) { sum += *item.slot(ring).as<std::uint64_t>(); });
  constexpr std::uint64_t items = 100'000;
  session.push(Counted(alive)).wait();
  const std::uint64_t allocations = cpu.allocations();
  for (std::uint64_t i = 1; i < items; ++i) {
    session.push(Counted(alive));
    most = std::max(most.load(), alive.load());
  }
  session.drain();
  EXPECT_EQ(sum, items * (items - 1) / 2);
  EXPECT_EQ(alive, 0);
  EXPECT_LE(most, 33);  // those in flight, and one that is being pushed
  EXPECT_EQ(cpu.allocations(), allocations);
}

class SessionCollector final : public Recorder {
 public:
  void record(const Interval& interval) noexcept override {
    const std::lock_guard lock(mutex_);
    ++count[std::string(interval.stage)];
    ordered = ordered && interval.begin_ns <= interval.end_ns && interval.begin_ns >= 0;
  }
  std::map<std::string, int> count;
  bool ordered = true;

 private:
  std::mutex mutex_;
};

TEST_F(Sessions, RecordsWhatStagesDid) {
  SessionCollector collector;
  {
    TinySession tiny(cpu, {.recorder = &collector});
    tiny.run_well(30);
  }
  // Host stages are not called for the ten items that are resident.
  EXPECT_EQ(collector.count["read"], 20);
  EXPECT_EQ(collector.count["compute"], 30);
  EXPECT_EQ(collector.count["write"], 30);
  EXPECT_TRUE(collector.ordered);
}

TEST_F(Sessions, AFailureThatComesWhenItsItemIsDoneIsNotLost) {
  Session session({.device = cpu});
  Door door;
  const Stream other(cpu);
  session.stage("device", {}, [&](Item&) {
    other.notify([&door] {
      door.wait();
      throw std::domain_error("late");
    });
  });
  session.push(0).wait();
  session.drain();
  door.open();
  other.synchronize();
  EXPECT_TRUE(is<std::domain_error>(failure_of([&] { session.drain(); })));
  session.drain();  // once
}

TEST_F(Sessions, RefusesWhatCannotWork) {
  const auto nothing = [](Item&) {};
  EXPECT_THROW(Session({.device = cpu, .in_flight = 0}), InvalidArgument);
  EXPECT_THROW(Session({.device = cpu, .in_flight = std::size_t{1} << 20}), InvalidArgument);
  EXPECT_THROW(Session({.device = cpu, .depth = 0}), InvalidArgument);
  Session session({.device = cpu});
  EXPECT_THROW(session.push(1), InvalidArgument) << "no stage";
  EXPECT_THROW(session.stage("s", {}, nullptr), InvalidArgument);
  EXPECT_THROW(session.stage("s", {.after = {StageId{}}}, nothing), InvalidArgument);
  EXPECT_THROW(session.ring("r", {.bytes = 0}), InvalidArgument);
  session.stage("s", {}, nothing);
  EXPECT_THROW(session.stage("s", {}, nothing), InvalidArgument);
  EXPECT_EQ(session.pushed(), 0U);
  session.push(1).wait();
  EXPECT_THROW(session.stage("late", {}, nothing), InvalidArgument);
  EXPECT_THROW(session.ring("late", {.bytes = 8}), InvalidArgument);
}

TEST_F(Sessions, RefusesMoreThan64Stages) {
  Session session({.device = cpu});
  const auto nothing = [](Item&) {};
  for (int i = 0; i < 64; ++i) session.stage("s" + std::to_string(i), {}, nothing);
  EXPECT_THROW(session.stage("one more", {}, nothing), InvalidArgument);
  session.push(1).wait();
}

TEST_F(Sessions, AConditionThatThrowsLeavesTheSessionAsItWas) {
  Session session({.device = cpu});
  session.host_stage(
      "host", {}, [](Item&) {}, [](const Payload& payload) { return payload.get<int>() > 0; });
  session.push(1).wait();
  EXPECT_THROW(session.push(1.5), InvalidArgument) << "the condition expects an int";
  EXPECT_EQ(session.pushed(), 1U);
  session.push(2).wait();
}

TEST_F(Sessions, APayloadOfAnotherTypeIsTheItemsError) {
  Session session({.device = cpu});
  session.host_stage("host", {}, [](Item& item) { item.payload<int>(); });
  const auto failure = failure_of([&] { session.push(std::string("text")).wait(); });
  ASSERT_TRUE(is<InvalidArgument>(failure));
  EXPECT_NE(text(failure).find("int"), std::string::npos) << text(failure);
  EXPECT_TRUE(is<InvalidArgument>(failure_of([&] { session.push(Payload()).wait(); })));
  session.push(1).wait();
}

TEST_F(Sessions, RefusesToWaitForItselfInsideAStage) {
  Session session({.device = cpu, .in_flight = 2});
  std::vector<Ticket> tickets;
  int refused = 0;
  Door door;
  session.host_stage("host", {}, [&](Item& item) {
    if (item.index() > 0) return;
    door.wait();
    for (const auto& call : std::vector<std::function<void()>>{
             [&] { tickets[1].wait(); }, [&] { session.drain(); }, [&] { session.push(2); }}) {
      try {
        call();
      } catch (const InvalidArgument&) {
        ++refused;
      } catch (const Exhausted&) {
        ++refused;
      }
    }
  });
  tickets.push_back(session.push(0));
  tickets.push_back(session.push(1));
  door.open();
  session.drain();
  EXPECT_EQ(refused, 3);
}

TEST_F(Sessions, AStageMayPushItems) {
  Session session({.device = cpu, .in_flight = 4});
  std::atomic<int> seen{0};
  session.host_stage("host", {}, [&](Item& item) {
    ++seen;
    if (item.payload<int>() > 0) session.push(item.payload<int>() - 1);
  });
  session.push(100);
  while (seen < 101) std::this_thread::yield();
  session.drain();
  EXPECT_EQ(session.pushed(), 101U);
}

TEST_F(Sessions, AMovedSessionGoesOn) {
  Session first({.device = cpu});
  std::atomic<int> seen{0};
  first.host_stage("host", {}, [&](Item&) { ++seen; });
  const Ticket before = first.push(1);
  Session second(std::move(first));
  second.push(2).wait();
  EXPECT_TRUE(before.done());
  second = Session({.device = cpu});
  EXPECT_EQ(seen, 2);
}

}  // namespace
}  // namespace ps::test
