// Exercise 2, without a GPU: the two threads below wait for each other for ever. Who waits for
// what? The ring is the kit's own; its barriers are made for threads of the CPU.
#include "gpu/exercises/2_deadlock.h"

#include <cstddef>

namespace ps::lesson {
namespace {

constexpr unsigned depth = 2;

struct Shared {
  kit::Ring<Barrier, depth> ring;
  int slots[depth] = {};
};

// Commits what it holds before it asks for more: the consumer, who holds two, needs it to go on.
// With three slots the producer could hold two as well.
void fill(const std::vector<int>& numbers, Shared& shared) {
  kit::Producer<Barrier, depth> producer(shared.ring);
  for (const int number : numbers) {
    shared.slots[producer.acquire()] = number;
    producer.commit();
  }
}

void use(std::vector<int>& result, Shared& shared) {
  kit::Consumer<Barrier, depth> consumer(shared.ring);
  unsigned held = consumer.wait();
  for (int& sum : result) {
    const unsigned next = consumer.wait();
    sum = shared.slots[held] + shared.slots[next];
    consumer.release();
    held = next;
  }
  consumer.release();
}

}  // namespace

std::vector<int> sums(const std::vector<int>& numbers) {
  Shared shared;
  shared.ring.init(1, 1);
  std::vector<int> result(numbers.size() - 1);
  at_the_same_time([&] { fill(numbers, shared); }, [&] { use(result, shared); });
  return result;
}

}  // namespace ps::lesson
