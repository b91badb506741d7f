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

// GAP: one of the two, or the depth, has to change. There is more than one way out.
void fill(const std::vector<int>& numbers, Shared& shared) {
  kit::Producer<Barrier, depth> producer(shared.ring);
  unsigned held = producer.acquire();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    // Acquires the next slot early.
    const unsigned next = i + 1 < numbers.size() ? producer.acquire() : 0;
    shared.slots[held] = numbers[i];
    producer.commit();
    held = next;
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
