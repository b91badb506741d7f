#include "penstock/kit/ring.h"

#include <type_traits>

#include "gpu/kit_test.h"
#include "penstock/kit/barrier.cuh"
#include "penstock/kit/bulk.cuh"
#include "penstock/kit/cluster.cuh"
#include "penstock/kit/fence.cuh"
#include "penstock/kit/warp.cuh"

namespace {

using ps::kit::lane_index;
using ps::kit::warp_index;
using ps::kit::warp_threads;
using ps::test::DeviceArray;
using ps::test::loiter;
using ps::test::same;

using Barrier = ps::test::Patient<ps::kit::Barrier>;
template <unsigned depth, class B = Barrier>
using Ring = ps::kit::Ring<B, depth>;
template <unsigned depth, class B = Barrier>
using Producer = ps::kit::Producer<B, depth>;
template <unsigned depth, class B = Barrier>
using Consumer = ps::kit::Consumer<B, depth>;

class KitRingGpu : public ps::test::KitSm90Test {};

// Calls `test` with every depth.
template <class Test>
void for_depths(const Test& test) {
  test(std::integral_constant<unsigned, 1>());
  test(std::integral_constant<unsigned, 2>());
  test(std::integral_constant<unsigned, 3>());
  test(std::integral_constant<unsigned, 4>());
}

// What one thread sees of a ring of two slots as it fills and empties it, 1 where it is right.
__global__ void look_at_ring(unsigned* out) {
  __shared__ Ring<2> ring;
  ring.init(1, 1);
  ps::kit::fence_barrier_init();
  Producer<2> producer(ring);
  Consumer<2> consumer(ring);
  unsigned i = 0;
  for (unsigned lap = 0; lap < 3; ++lap) {
    out[i++] = producer.try_acquire();
    out[i++] = producer.acquire() == 0;
    out[i++] = producer.acquire() == 1;
    out[i++] = !producer.try_acquire();
    out[i++] = !consumer.try_wait();
    producer.commit();
    out[i++] = consumer.try_wait();
    out[i++] = consumer.wait(true) == 0;
    out[i++] = !consumer.try_wait();
    producer.commit();
    out[i++] = consumer.wait() == 1;
    out[i++] = consumer.oldest() == 0;
    out[i++] = !producer.try_acquire();
    consumer.release();
    out[i++] = consumer.oldest() == 1;
    out[i++] = producer.try_acquire();
    consumer.release();
  }
}

TEST_F(KitRingGpu, LooksTellFullAndEmpty) {
  const DeviceArray<unsigned> out(39);
  run(look_at_ring, {}, out.data());
  EXPECT_TRUE(same(out.values(), [](std::size_t) { return 1U; }));
}

// Producers write a word each into a slot, consumers copy the slot out. All threads arrive, or
// one of every warp.
template <unsigned depth>
__global__ void by_threads(const std::uint32_t* in, std::uint32_t* out, unsigned producers,
                           bool per_warp, unsigned rounds) {
  __shared__ Ring<depth> ring;
  __shared__ std::uint32_t slots[depth][2 * warp_threads];
  const unsigned words = producers * warp_threads, consuming = blockDim.x - words;
  const unsigned threads_per_arrival = per_warp ? warp_threads : 1;
  if (threadIdx.x == 0) {
    ring.init(words / threads_per_arrival, consuming / threads_per_arrival);
    ps::kit::fence_barrier_init();
  }
  __syncthreads();
  const bool arrives = !per_warp || lane_index() == 0;
  if (warp_index() < producers) {
    Producer<depth> producer(ring);
    for (unsigned round = 0; round < rounds; ++round) {
      const unsigned slot = producer.acquire();
      loiter(round);
      slots[slot][threadIdx.x] = in[round * words + threadIdx.x];
      __syncwarp();
      if (arrives) producer.commit();
    }
  } else {
    Consumer<depth> consumer(ring);
    for (unsigned round = 0; round < rounds; ++round) {
      const unsigned slot = consumer.wait();
      loiter(round);
      for (unsigned i = threadIdx.x - words; i < words; i += consuming) {
        out[round * words + i] = slots[slot][i];
      }
      __syncwarp();
      if (arrives) {
        consumer.release();
      } else {
        consumer.skip_release();
      }
    }
  }
}

class KitRingByThreadsGpu : public KitRingGpu {
 protected:
  void check(bool per_warp) {
    constexpr unsigned rounds = 97;
    for_depths([&](auto depth) {
      for (const unsigned producers : {1U, 2U}) {
        for (const unsigned consumers : {1U, 3U}) {
          SCOPED_TRACE(testing::Message() << "depth " << depth() << ", " << producers
                                          << " producing warps, " << consumers << " consuming");
          const auto words = noise(producers * warp_threads * rounds);
          const DeviceArray<std::uint32_t> in(words), out(words.size());
          run(by_threads<depth()>, {.block = (producers + consumers) * warp_threads}, in.data(),
              out.data(), producers, per_warp, rounds);
          EXPECT_TRUE(same(out.values(), words));
        }
      }
    });
  }
};

TEST_F(KitRingByThreadsGpu, AllArrive) { check(false); }
TEST_F(KitRingByThreadsGpu, OneOfAWarpArrives) { check(true); }

constexpr unsigned slot_words = 512;

// One thread of every producing warp has its part of a slot copied.
template <unsigned depth>
__global__ void by_bulk_copies(const std::uint32_t* in, std::uint32_t* out, unsigned producers,
                               unsigned rounds) {
  __shared__ alignas(128) std::uint32_t slots[depth][slot_words];
  __shared__ Ring<depth> ring;
  const unsigned loading = producers * warp_threads, consuming = blockDim.x - loading;
  if (threadIdx.x == 0) {
    ring.init(producers, consuming / warp_threads);
    ps::kit::fence_barrier_init();
  }
  __syncthreads();
  if (warp_index() < producers) {
    if (lane_index() != 0) return;
    const unsigned part = slot_words / producers, begin = warp_index() * part;
    Producer<depth> producer(ring);
    for (unsigned round = 0; round < rounds; ++round) {
      const unsigned slot = producer.acquire(part * 4);
      loiter(round);
      ps::kit::bulk_load(&slots[slot][begin], in + round * slot_words + begin, part * 4,
                         producer.full(slot));
    }
  } else {
    Consumer<depth> consumer(ring);
    for (unsigned round = 0; round < rounds; ++round) {
      const unsigned slot = consumer.wait();
      loiter(round);
      for (unsigned i = threadIdx.x - loading; i < slot_words; i += consuming) {
        out[round * slot_words + i] = slots[slot][i];
      }
      __syncwarp();
      if (lane_index() == 0) {
        consumer.release();
      } else {
        consumer.skip_release();
      }
    }
  }
}

TEST_F(KitRingGpu, ByBulkCopies) {
  constexpr unsigned rounds = 97;
  for_depths([&](auto depth) {
    for (const unsigned producers : {1U, 2U}) {
      for (const unsigned consumers : {1U, 2U, 3U}) {
        SCOPED_TRACE(testing::Message() << "depth " << depth() << ", " << producers
                                        << " producing warps, " << consumers << " consuming");
        const auto words = noise(slot_words * rounds);
        const DeviceArray<std::uint32_t> in(words), out(words.size());
        run(by_bulk_copies<depth()>, {.block = (producers + consumers) * warp_threads}, in.data(),
            out.data(), producers, rounds);
        EXPECT_TRUE(same(out.values(), words));
      }
    }
  });
}

// The producer has acquired a second slot when it fills the first, the consumer has waited for a
// second when it reads both: three slots are enough.
template <unsigned depth>
__global__ void hold_two(const std::uint32_t* in, std::uint32_t* out, unsigned* errors,
                         unsigned rounds) {
  __shared__ Ring<depth> ring;
  __shared__ std::uint32_t slots[depth][warp_threads];
  if (threadIdx.x == 0) {
    ring.init(warp_threads, warp_threads);
    ps::kit::fence_barrier_init();
  }
  __syncthreads();
  const unsigned lane = lane_index();
  if (warp_index() == 0) {
    Producer<depth> producer(ring);
    unsigned held = producer.acquire();
    for (unsigned round = 0; round < rounds; ++round) {
      const unsigned next = round + 1 < rounds ? producer.acquire() : 0;
      loiter(round);
      slots[held][lane] = in[round * warp_threads + lane];
      producer.commit();
      held = next;
    }
  } else {
    Consumer<depth> consumer(ring);
    unsigned held = consumer.wait(), wrong = 0;
    for (unsigned round = 0; round + 1 < rounds; ++round) {
      const unsigned next = consumer.wait();
      loiter(round);
      // Words of other threads, so that the barrier matters.
      const unsigned other = lane ^ 21;
      out[round * warp_threads + other] = slots[held][other] ^ slots[next][other];
      wrong += consumer.oldest() != held;
      consumer.release();
      held = next;
    }
    consumer.release();
    errors[lane] = wrong;
  }
}

TEST_F(KitRingGpu, SlotsAreHeld) {
  constexpr unsigned rounds = 101;
  const auto check = [&](auto depth) {
    SCOPED_TRACE(testing::Message() << "depth " << depth());
    const auto words = noise(warp_threads * rounds);
    const DeviceArray<std::uint32_t> in(words), out(warp_threads * (rounds - 1));
    const DeviceArray<unsigned> errors(warp_threads);
    run(hold_two<depth()>, {.block = 64}, in.data(), out.data(), errors.data(), rounds);
    EXPECT_TRUE(
        same(out.values(), [&](std::size_t i) { return words[i] ^ words[i + warp_threads]; }));
    EXPECT_TRUE(same(errors.values(), [](std::size_t) { return 0U; }));
  };
  check(std::integral_constant<unsigned, 3>());
  check(std::integral_constant<unsigned, 4>());
  check(std::integral_constant<unsigned, 5>());
}

// The producer sees every slot given back before it goes on.
__global__ void drain(unsigned* out, unsigned rounds) {
  __shared__ Ring<3> ring;
  __shared__ unsigned used;
  if (threadIdx.x == 0) {
    ring.init(1, 2 * warp_threads);
    ps::kit::fence_barrier_init();
    used = 0;
  }
  __syncthreads();
  if (warp_index() == 0) {
    if (lane_index() != 0) return;
    Producer<3> producer(ring);
    for (unsigned round = 0; round < rounds; ++round) {
      producer.acquire();
      producer.commit();
    }
    producer.drain();
    *out = used;
  } else {
    Consumer<3> consumer(ring);
    for (unsigned round = 0; round < rounds; ++round) {
      consumer.wait();
      loiter(round);
      atomicAdd(&used, 1U);
      consumer.release();
    }
  }
}

TEST_F(KitRingGpu, DrainWaitsForTheLastRelease) {
  for (const unsigned rounds : {1U, 2U, 3U, 4U, 50U}) {
    const DeviceArray<unsigned> out(1);
    run(drain, {.block = 96}, out.data(), rounds);
    EXPECT_EQ(out.values()[0], rounds * 2 * warp_threads) << rounds << " rounds";
  }
}

using ClusterBarrier = ps::test::Patient<ps::kit::ClusterBarrier>;

// Every block of a cluster loads its part of each slot for all of them; a slot is free when all
// blocks have given it back, to every loader.
template <unsigned depth, class B>
__global__ void across_cluster(const std::uint32_t* in, std::uint32_t* out, unsigned rounds) {
  __shared__ alignas(128) std::uint32_t slots[depth][slot_words];
  __shared__ Ring<depth, B> ring;
  const unsigned rank = ps::kit::cluster_rank(), size = ps::kit::cluster_size();
  const unsigned consumers = blockDim.x / warp_threads - 1;
  if (threadIdx.x == 0) {
    ring.init(1, consumers * size);
    ps::kit::fence_barrier_init();
  }
  ps::kit::cluster_sync();
  const std::uint32_t* const source = in + blockIdx.x / size * rounds * slot_words;
  if (warp_index() == 0) {
    if (lane_index() == 0) {
      const unsigned part = slot_words / size, begin = rank * part;
      Producer<depth, B> producer(ring);
      for (unsigned round = 0; round < rounds; ++round) {
        const unsigned slot = producer.acquire(slot_words * 4);
        loiter(round);
        ps::kit::bulk_load_multicast(&slots[slot][begin], source + round * slot_words + begin,
                                     part * 4, producer.full(slot),
                                     static_cast<std::uint16_t>((1U << size) - 1));
      }
    }
  } else {
    Consumer<depth, B> consumer(ring);
    for (unsigned round = 0; round < rounds; ++round) {
      const unsigned slot = consumer.wait();
      loiter(round);
      for (unsigned i = threadIdx.x - warp_threads; i < slot_words; i += consumers * warp_threads) {
        out[(blockIdx.x * rounds + round) * slot_words + i] = slots[slot][i];
      }
      __syncwarp();
      if (lane_index() < size) consumer.empty(consumer.oldest()).arrive_in(lane_index());
      consumer.skip_release();
    }
  }
  __syncwarp();
  ps::kit::cluster_sync();  // nobody arrives at a block that has ended
}

class KitClusterRingGpu : public KitRingGpu {
 protected:
  template <class B>
  void check() {
    constexpr unsigned rounds = 60, clusters = 3;
    for_depths([&](auto depth) {
      for (const unsigned size : {2U, 4U, 8U}) {
        SCOPED_TRACE(testing::Message() << "depth " << depth() << ", " << size << " blocks");
        const auto words = noise(clusters * rounds * slot_words);
        const DeviceArray<std::uint32_t> in(words), out(words.size() * size);
        run(across_cluster<depth(), B>, {.grid = clusters * size, .block = 96, .cluster = size},
            in.data(), out.data(), rounds);
        EXPECT_TRUE(same(out.values(), [&](std::size_t i) {
          const std::size_t block = i / (rounds * slot_words);
          return words[block / size * rounds * slot_words + i % (rounds * slot_words)];
        }));
      }
    });
  }
};

TEST_F(KitClusterRingGpu, OrderedRelease) { check<ClusterBarrier>(); }
TEST_F(KitClusterRingGpu, RelaxedRelease) { check<Barrier>(); }

}  // namespace
