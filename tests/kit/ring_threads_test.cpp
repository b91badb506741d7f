// The ring between real threads, over plain memory: ThreadSanitizer sees whether it orders every
// write before every read, and every read before the next write.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kit/host_barrier.h"
#include "penstock/kit/ring.h"
#include "support/watchdog.h"

namespace {

using ps::kit::Consumer;
using ps::kit::Producer;
using ps::kit::Ring;
using ps::test::HostBarrier;

constexpr unsigned depth = 3, producers = 2, consumers = 3;

struct Shared {
  explicit Shared(std::uint32_t item_count) : items(item_count) { ring.init(producers, consumers); }

  const std::uint32_t items;
  const unsigned seed = std::random_device{}();
  Ring<HostBarrier, depth> ring;
  std::array<std::array<std::uint32_t, producers>, depth> slots{};
  std::array<std::uint32_t, consumers> wrong{};
};

std::uint32_t value_of(std::uint32_t item, unsigned producer) {
  return item * producers + producer;
}

void sometimes_yield(std::minstd_rand& random) {
  if (random() % 64 == 0) std::this_thread::yield();
}

void consume(Shared& shared, unsigned c) {
  std::minstd_rand random(shared.seed + c);
  Consumer consumer(shared.ring);
  for (std::uint32_t item = 0; item < shared.items; ++item) {
    const unsigned slot = consumer.wait(consumer.try_wait());
    sometimes_yield(random);
    for (unsigned p = 0; p < producers; ++p) {
      if (shared.slots[slot][p] != value_of(item, p)) ++shared.wrong[c];
    }
    consumer.release();
  }
}

// Runs the consumers, `produce` once for every producer, and `also`.
template <class Produce, class Also>
void expect_right(Shared& shared, const Produce& produce, const Also& also) {
  const std::string seed = "seed " + std::to_string(shared.seed);
  const ps::test::Watchdog watchdog("ring between threads, " + seed);
  std::vector<std::thread> threads;
  for (unsigned p = 0; p < producers; ++p) threads.emplace_back(produce, p);
  for (unsigned c = 0; c < consumers; ++c) threads.emplace_back([&, c] { consume(shared, c); });
  also();
  for (std::thread& thread : threads) thread.join();
  for (const std::uint32_t count : shared.wrong) EXPECT_EQ(count, 0U) << seed;
}

TEST(RingThreads, ThreadsCommit) {
  Shared shared(20'000);
  const auto produce = [&](unsigned p) {
    std::minstd_rand random(shared.seed + consumers + p);
    Producer producer(shared.ring);
    for (std::uint32_t item = 0; item < shared.items; ++item) {
      const unsigned slot = producer.acquire();
      shared.slots[slot][p] = value_of(item, p);
      sometimes_yield(random);
      producer.commit();
    }
    producer.drain();
    for (auto& slot : shared.slots) slot[p] = 0;  // nobody reads any more
  };
  expect_right(shared, produce, [] {});
}

TEST(RingThreads, AnotherThreadsCopiesCommit) {
  constexpr unsigned bytes = 4;
  Shared shared(20'000);
  struct Copy {
    HostBarrier* barrier;
    std::uint32_t* to;
    std::uint32_t value;
  };
  std::mutex mutex;
  std::vector<Copy> queue;

  const auto produce = [&](unsigned p) {
    Producer producer(shared.ring);
    for (std::uint32_t item = 0; item < shared.items; ++item) {
      const unsigned slot = producer.acquire(bytes);
      const std::lock_guard lock(mutex);
      queue.push_back({&producer.full(slot), &shared.slots[slot][p], value_of(item, p)});
    }
  };
  const auto copy = [&] {
    std::minstd_rand random(shared.seed);
    for (std::uint32_t left = shared.items * producers; left > 0;) {
      std::unique_lock lock(mutex);
      if (queue.empty()) {
        lock.unlock();
        std::this_thread::yield();
        continue;
      }
      std::swap(queue[random() % queue.size()], queue.back());
      const Copy next = queue.back();
      queue.pop_back();
      lock.unlock();
      *next.to = next.value;
      sometimes_yield(random);
      next.barrier->complete(bytes);
      --left;
    }
  };
  expect_right(shared, produce, copy);
}

}  // namespace
