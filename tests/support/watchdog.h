// Ends the test program when a test hangs, so that a lost wake-up is a failure and not a timeout of
// the whole suite.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace ps::test {

class Watchdog {
 public:
  // `what` is printed before the abort: say which case, with its seed.
  explicit Watchdog(std::string what, std::chrono::seconds limit = std::chrono::seconds(60));
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Another step of the test begins: its name, and its own time.
  void step(std::string what);

 private:
  void watch();

  const std::chrono::seconds limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string what_;
  std::chrono::steady_clock::time_point deadline_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace ps::test
