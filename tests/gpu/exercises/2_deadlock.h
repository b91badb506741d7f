#pragma once

#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "kit/host_barrier.h"
#include "penstock/kit/ring.h"

namespace ps::lesson {

// What a wait throws that never ends.
struct Stuck {};

// In place of the mbarriers of a GPU, between threads of this process. A wait that never ends ends
// after a second.
struct Barrier : test::HostBarrier {
  // The ring calls this one. NOLINTNEXTLINE(bugprone-derived-method-shadowing-base-method)
  void wait(unsigned parity) const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    while (!try_wait(parity)) {
      if (std::chrono::steady_clock::now() > deadline) throw Stuck();
      std::this_thread::yield();
    }
  }
};

// sums[i] = numbers[i] + numbers[i + 1], for all that have a neighbour. The numbers pass from one
// thread to another through a ring.
std::vector<int> sums(const std::vector<int>& numbers);

// Runs the two at the same time, and throws when both have ended and not both ended well.
template <class Fill, class Use>
void at_the_same_time(const Fill& fill, const Use& use) {
  const auto run = [](const char* waits, const auto& role, std::string& failure) {
    try {
      role();
    } catch (const Stuck&) {
      failure = waits;
    }
  };
  std::string producer, consumer;
  std::thread filling(
      [&] { run("the producer waits for ever for a slot to be given back; ", fill, producer); });
  run("the consumer waits for ever for a slot to be filled; ", use, consumer);
  filling.join();
  const std::string both = producer + consumer;
  if (!both.empty()) throw std::runtime_error(both.substr(0, both.size() - 2));
}

}  // namespace ps::lesson
