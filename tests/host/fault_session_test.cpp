// Every call that can fail does, one after the other, while a session works. Whatever happens:
// tickets end well or with their cause, nothing is leaked or touched out of order, nothing hangs,
// and the session goes on unless the device is lost.
#include <gtest/gtest.h>

#include <chrono>
#include <exception>
#include <optional>
#include <ostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/host/session.h"
#include "support/expect_clean.h"
#include "support/failure_of.h"
#include "support/fake_machine.h"
#include "support/tiny_session.h"
#include "support/watchdog.h"

namespace ps::test {
namespace {

constexpr std::uint64_t session_items = 6;

struct SessionVariant {
  const char* name;
  bool stream_wait_value = true;
  bool host_calls = false;
  bool borrowed = false;
  bool host_stages = true;
  Waiting waiting = Waiting::poll;

  friend std::ostream& operator<<(std::ostream& out, const SessionVariant& variant) {
    return out << variant.name;
  }
};

class SessionFaults : public testing::TestWithParam<SessionVariant> {
 protected:
  FakeOptions fake_options() const {
    return {.stream_wait_value = GetParam().stream_wait_value, .max_delay_us = 30};
  }
  std::vector<cuda::StreamHandle> callers_streams(FakeMachine& machine) const {
    std::vector<cuda::StreamHandle> handles(GetParam().borrowed ? 3 : 0);
    for (auto& handle : handles) handle = machine.driver().foreign_stream();
    return handles;
  }
  TinySessionOptions tiny_options(FakeMachine& machine,
                                  const std::vector<cuda::StreamHandle>& handles) const {
    TinySessionOptions options{.in_flight = 4,
                               .driver = &machine.driver(),
                               .host_stages = GetParam().host_stages,
                               .host_calls = GetParam().host_calls,
                               .waiting = GetParam().waiting};
    for (const auto handle : handles) {
      options.streams.push_back(borrow_native(machine.gpu(), handle));
    }
    return options;
  }
  void step(std::uint64_t n) {
    here = std::string(testing::UnitTest::GetInstance()->current_test_info()->name()) +
           ", fault at " + std::to_string(n);
    watchdog.step(here);
  }
  // Pushes items, makes a stream wait for each, and collects what failed.
  static std::vector<std::exception_ptr> use(TinySession& tiny, const Stream& stream) {
    std::vector<std::exception_ptr> failures;
    std::vector<TinySession::Pushed> pushed;
    const auto attempt = [&](const std::function<void()>& code) {
      if (auto failure = failure_of(code)) failures.push_back(std::move(failure));
    };
    for (std::uint64_t i = 0; i < session_items; ++i) {
      attempt([&] {
        pushed.push_back(tiny.push(i, i % 3 == 2));
        pushed.back().ticket.join(stream);
      });
    }
    for (const auto& item : pushed) attempt([&] { tiny.check(item); });
    return failures;
  }
  template <class Error>
  void expect_all(const std::vector<std::exception_ptr>& failures) const {
    for (const auto& failure : failures) {
      EXPECT_TRUE(is<Error>(failure)) << here << ": " << text(failure);
    }
  }

  std::string here;
  Watchdog watchdog{"SessionFaults"};
};

INSTANTIATE_TEST_SUITE_P(
    Sessions, SessionFaults,
    testing::Values(
        SessionVariant{.name = "OwnStreams"},
        SessionVariant{.name = "CallersStreams", .borrowed = true},
        SessionVariant{.name = "HostCalls", .host_calls = true, .waiting = Waiting::block},
        SessionVariant{
            .name = "HostCallsByCallback", .stream_wait_value = false, .host_calls = true},
        SessionVariant{.name = "DeviceOnly", .host_stages = false}),
    [](const auto& tested) { return std::string(tested.param.name); });

TEST_P(SessionFaults, AnAllocationFails) {
  FakeMachine machine(fake_options());
  FakeDriver& driver = machine.driver();
  const auto streams = callers_streams(machine);
  bool struck = true;
  for (std::uint64_t n = 1; struck; ++n) {
    step(n);
    {
      const Stream stream(machine.gpu());
      TinySession tiny(machine.gpu(), tiny_options(machine, streams));
      driver.fail_call(n, cuda::memory_allocation, allocating_calls);
      const auto failures = use(tiny, stream);
      struck = driver.fault_struck();
      driver.disarm();
      expect_all<OutOfMemory>(failures);
      EXPECT_LE(failures.size(), struck ? 1U : 0U) << here;
      tiny.run_well(session_items);
      failure_of([&] { stream.synchronize(); });
    }
    ASSERT_TRUE(is_clean(driver)) << here;
  }
}

TEST_P(SessionFaults, AnyCallFails) {
  FakeMachine machine(fake_options());
  FakeDriver& driver = machine.driver();
  const auto streams = callers_streams(machine);
  bool struck = true;
  for (std::uint64_t n = 1; struck; ++n) {
    step(n);
    {
      const Stream stream(machine.gpu());
      driver.fail_call(n, unknown_error);
      std::optional<TinySession> tiny;
      const auto made =
          failure_of([&] { tiny.emplace(machine.gpu(), tiny_options(machine, streams)); });
      if (made) {
        EXPECT_TRUE(is<DeviceError>(made)) << here << ": " << text(made);
      }
      if (tiny) {
        const auto failures = use(*tiny, stream);
        struck = driver.fault_struck();
        expect_all<DeviceError>(failures);
        EXPECT_TRUE(failures.empty() || struck) << here;
      }
      driver.disarm();
      if (tiny) tiny->run_well(session_items);
      failure_of([&] { stream.synchronize(); });
    }
    ASSERT_TRUE(is_clean(driver)) << here;
  }
}

TEST_P(SessionFaults, ACallOfTheEndFails) {
  FakeMachine machine(fake_options());
  FakeDriver& driver = machine.driver();
  const auto streams = callers_streams(machine);
  bool struck = true;
  for (std::uint64_t n = 1; struck; ++n) {
    step(n);
    {
      const Stream stream(machine.gpu());
      TinySession tiny(machine.gpu(), tiny_options(machine, streams));
      tiny.run_well(session_items);
      tiny.push(1).ticket.join(stream);
      driver.fail_call(n, unknown_error);
    }  // destructors meet the fault
    ASSERT_TRUE(is_clean(driver)) << here;
    struck = driver.fault_struck();
    driver.disarm();
  }
}

TEST_P(SessionFaults, TheDeviceIsLostAtAnyCall) {
  bool struck = true;
  for (std::uint64_t n = 1; struck; n += 3) {
    step(n);
    FakeMachine machine(fake_options());
    FakeDriver& driver = machine.driver();
    const auto streams = callers_streams(machine);
    {
      const Stream stream(machine.gpu());
      TinySession tiny(machine.gpu(), tiny_options(machine, streams));
      driver.lose_device_at(n);
      const auto failures = use(tiny, stream);
      struck = driver.fault_struck();
      expect_all<DeviceError>(failures);
      if (!failures.empty()) {
        const auto again = use(tiny, stream);
        EXPECT_GE(again.size(), session_items) << here;  // joins fail as well
        expect_all<DeviceLost>(again);
      }
    }
    ASSERT_TRUE(is_clean_after_loss(driver)) << here;
  }
}

TEST_P(SessionFaults, APieceOfWorkFails) {
  bool struck = true;
  for (std::uint64_t n = 1; struck; ++n) {
    step(n);
    FakeMachine machine(fake_options());
    FakeDriver& driver = machine.driver();
    const auto streams = callers_streams(machine);
    {
      const Stream stream(machine.gpu());
      TinySession tiny(machine.gpu(), tiny_options(machine, streams));
      driver.fail_work(n, launch_failure);
      const auto failures = use(tiny, stream);
      struck = driver.fault_struck();
      EXPECT_EQ(struck, !failures.empty()) << here;
      expect_all<DeviceError>(failures);
    }
    ASSERT_TRUE(is_clean_after_loss(driver)) << here;
  }
}

// On the fake GPU: random delays, cancellations, failures, joins, and sessions that go early.
TEST(SessionStress, AnythingAtRandom) {
  Watchdog watchdog("SessionStress");
  for (unsigned seed = 1; seed <= 150; ++seed) {
    const std::string here = "seed " + std::to_string(seed);
    watchdog.step(here);
    std::minstd_rand random(seed);
    FakeMachine machine({.stream_wait_value = random() % 4 != 0, .seed = seed, .max_delay_us = 20});
    {
      const std::vector<Stream> streams{Stream(machine.gpu()), Stream(machine.gpu())};
      std::vector<TinySession::Pushed> pushed;
      {
        TinySession tiny(machine.gpu(), {.depth = 1 + random() % 3,
                                         .in_flight = 1 + random() % 10,
                                         .driver = &machine.driver(),
                                         .host_stages = random() % 3 != 0,
                                         .host_calls = random() % 2 == 0});
        const std::string& stage = TinySession::stages[random() % TinySession::stages.size()];
        const std::uint64_t bad = random() % 20;
        tiny.hook = [&stage, bad](const std::string& at, Item& item) {
          if (at == stage && item.index() == bad) throw std::domain_error("at random");
        };
        for (std::uint64_t i = 0; i < 15; ++i) {
          pushed.push_back(tiny.push(i, random() % 3 == 0));
          if (random() % 4 == 0) pushed[random() % pushed.size()].ticket.cancel();
          if (random() % 3 == 0)
            pushed[random() % pushed.size()].ticket.join(streams[random() % 2]);
        }
        if (random() % 2 == 0) {
          for (const auto& item : pushed) {
            const auto failure = failure_of([&] { tiny.check(item); });
            EXPECT_TRUE(!failure || is<Cancelled>(failure) || is<std::domain_error>(failure))
                << here << ": " << text(failure);
          }
          tiny.session.drain();
          tiny.hook = nullptr;
          tiny.run_well(5);
        }
      }
      for (const auto& item : pushed) EXPECT_TRUE(item.ticket.done());
      for (const Stream& stream : streams) stream.synchronize();
    }
    ASSERT_TRUE(is_clean(machine.driver())) << here;
    ASSERT_FALSE(testing::Test::HasFailure()) << here;
  }
}

}  // namespace
}  // namespace ps::test
