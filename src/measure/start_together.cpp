#include "measure/start_together.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <thread>
#include <vector>

#include "host/first_error.h"

namespace ps::detail {
namespace {

enum Gate : int { closed, open, given_up };

void wait_until_at_least(std::atomic<int>& value, int wanted) {
  for (int now = value.load(); now < wanted; now = value.load()) value.wait(now);
}

}  // namespace

double run_threads_together(int threads, const std::function<void(int)>& work) {
  using Clock = std::chrono::steady_clock;
  std::atomic<int> gate = closed;
  std::atomic<int> ready = 0;
  std::atomic<int> done = 0;
  FirstError failure;
  std::vector<std::jthread> crew;
  crew.reserve(static_cast<std::size_t>(threads));

  const auto run = [&](int index) {
    ++ready;
    ready.notify_one();
    gate.wait(closed);
    if (gate == given_up) return;
    try {
      work(index);
    } catch (...) {
      failure.set(std::current_exception());
    }
    ++done;
    done.notify_one();
  };
  try {
    for (int i = 0; i < threads; ++i) crew.emplace_back(run, i);
  } catch (...) {
    // No more threads to be had: the waiting threads must end before they can be joined.
    gate = given_up;
    gate.notify_all();
    throw;
  }

  wait_until_at_least(ready, threads);
  const Clock::time_point start = Clock::now();
  gate = open;
  gate.notify_all();
  wait_until_at_least(done, threads);
  const std::chrono::duration<double> elapsed = Clock::now() - start;
  crew.clear();
  failure.rethrow();
  return elapsed.count();
}

}  // namespace ps::detail
