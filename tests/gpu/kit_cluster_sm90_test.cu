#include "penstock/kit/cluster.cuh"

#include "gpu/kit_test.h"
#include "penstock/kit/fence.cuh"

namespace {

using ps::kit::cluster_rank;
using ps::kit::cluster_size;
using ps::kit::cluster_sync;
using ps::kit::in_block;
using ps::test::DeviceArray;
using ps::test::loiter;
using ps::test::same;

class KitClusterGpu : public ps::test::KitSm90Test {};

constexpr unsigned sizes[] = {1, 2, 4, 8};

__global__ void places(unsigned* ranks, unsigned* sizes_seen) {
  if (threadIdx.x != 0) return;
  ranks[blockIdx.x] = cluster_rank();
  sizes_seen[blockIdx.x] = cluster_size();
}

TEST_F(KitClusterGpu, RankAndSize) {
  for (const unsigned size : sizes) {
    SCOPED_TRACE(testing::Message() << size << " blocks");
    const DeviceArray<unsigned> ranks(24), seen(24);
    run(places, {.grid = 24, .block = 32, .cluster = size}, ranks.data(), seen.data());
    EXPECT_TRUE(
        same(ranks.values(), [&](std::size_t i) { return static_cast<unsigned>(i % size); }));
    EXPECT_TRUE(same(seen.values(), [&](std::size_t) { return size; }));
  }
}

// Reads the words of the next block and writes, into the block before, what they are plus one.
__global__ void reach(const std::uint32_t* in, std::uint32_t* read, std::uint32_t* written) {
  __shared__ std::uint32_t own[128], inbox[128];
  const unsigned rank = cluster_rank(), size = cluster_size(), me = threadIdx.x;
  const unsigned index = blockIdx.x * 128 + me;
  own[me] = in[index];
  inbox[me] = 0xFFFFFFFF;
  cluster_sync();
  const std::uint32_t next = *in_block(&own[127 - me], (rank + 1) % size);
  read[index] = next;
  *in_block(&inbox[me], (rank + size - 1) % size) = next + 1;
  cluster_sync();
  written[index] = inbox[me];
}

TEST_F(KitClusterGpu, ReadsAndWritesOtherBlocks) {
  for (const unsigned size : sizes) {
    SCOPED_TRACE(testing::Message() << size << " blocks");
    const unsigned blocks = 3 * size;
    const auto words = noise(blocks * 128);
    const DeviceArray<std::uint32_t> in(words), read(words.size()), written(words.size());
    run(reach, {.grid = blocks, .block = 128, .cluster = size}, in.data(), read.data(),
        written.data());
    // What block b reads: the next block's words, backwards.
    const auto seen = [&](std::size_t block, std::size_t i) {
      return words[(block / size * size + (block + 1) % size) * 128 + 127 - i];
    };
    EXPECT_TRUE(same(read.values(), [&](std::size_t i) { return seen(i / 128, i % 128); }));
    EXPECT_TRUE(same(written.values(), [&](std::size_t i) {
      const std::size_t block = i / 128, writer = block / size * size + (block + 1) % size;
      return seen(writer, i % 128) + 1;
    }));
  }
}

// Every round each thread writes a word of its own and reads one of every other block. The two
// halves of the barrier stand apart.
__global__ void take_turns(unsigned rounds, unsigned* errors) {
  __shared__ unsigned words[2][64];
  const unsigned rank = cluster_rank(), size = cluster_size(), me = threadIdx.x;
  unsigned wrong = 0;
  for (unsigned round = 0; round < rounds; ++round) {
    loiter(round * 8 + rank);
    words[round % 2][me] = (round * 8 + rank) * 64 + me;
    __syncwarp();
    ps::kit::cluster_arrive();
    const unsigned other = (me + 33) % 64;
    ps::kit::cluster_wait();
    for (unsigned block = 0; block < size; ++block) {
      wrong += *in_block(&words[round % 2][other], block) != (round * 8 + block) * 64 + other;
    }
  }
  __syncwarp();
  cluster_sync();
  errors[blockIdx.x * 64 + me] = wrong;
}

TEST_F(KitClusterGpu, BarrierInManyRounds) {
  for (const unsigned size : sizes) {
    SCOPED_TRACE(testing::Message() << size << " blocks");
    const DeviceArray<unsigned> errors(2 * size * 64);
    run(take_turns, {.grid = 2 * size, .block = 64, .cluster = size}, 300U, errors.data());
    EXPECT_TRUE(same(errors.values(), [](std::size_t) { return 0U; }));
  }
}

// Every thread stores a word or a float4 in the next block, whose barrier counts the bytes.
template <class Value>
__global__ void store_values(const Value* in, Value* out, unsigned rounds) {
  __shared__ Value inbox[128];
  __shared__ ps::test::Patient<ps::kit::ClusterBarrier> full;
  const unsigned rank = cluster_rank(), size = cluster_size(), me = threadIdx.x;
  if (me == 0) {
    full.init(1);
    ps::kit::fence_barrier_init();
  }
  memset(&inbox[me], 0xFF, sizeof(Value));
  for (unsigned round = 0; round < rounds; ++round) {
    const unsigned index = (blockIdx.x * rounds + round) * 128 + me;
    if (me == 0) full.arrive_expect(sizeof(inbox));
    __syncwarp();
    cluster_sync();  // everyone expects values, and has read those of the round before
    ps::kit::store_in(&inbox[127 - me], in[index], full, (rank + 1) % size);
    full.wait(round % 2);
    out[index] = inbox[me];
    __syncwarp();
  }
  cluster_sync();
}

template <class Value>
class KitClusterStores : public KitClusterGpu {};
using StoredValues = testing::Types<std::uint32_t, float4>;
TYPED_TEST_SUITE(KitClusterStores, StoredValues);

TYPED_TEST(KitClusterStores, CompleteOnABarrier) {
  constexpr unsigned rounds = 30, each = sizeof(TypeParam) / sizeof(std::uint32_t);
  for (const unsigned size : {2U, 4U, 8U}) {
    SCOPED_TRACE(testing::Message() << size << " blocks");
    const unsigned blocks = 2 * size;
    const auto words = this->noise(blocks * rounds * 128 * each);
    const DeviceArray<std::uint32_t> in(words), out(words.size());
    this->run(store_values<TypeParam>, {.grid = blocks, .block = 128, .cluster = size},
              reinterpret_cast<const TypeParam*>(in.data()),
              reinterpret_cast<TypeParam*>(out.data()), rounds);
    EXPECT_TRUE(same(out.values(), [&](std::size_t word) {
      const std::size_t i = word / each;  // of the value
      const std::size_t block = i / (rounds * 128), round = i / 128 % rounds;
      const std::size_t from = block / size * size + (block + size - 1) % size;
      return words[((from * rounds + round) * 128 + 127 - i % 128) * each + word % each];
    }));
  }
}

// All blocks write into the first and arrive at its barrier; it checks, and lets them go on by
// arriving at theirs.
__global__ void arrive_there(unsigned rounds, unsigned* errors) {
  __shared__ ps::test::Patient<ps::kit::ClusterBarrier> come, go;
  __shared__ unsigned words[8][32];
  const unsigned rank = cluster_rank(), size = cluster_size(), lane = threadIdx.x;
  if (lane == 0) {
    come.init(32 * size);
    go.init(32);
    ps::kit::fence_barrier_init();
  }
  __syncwarp();
  cluster_sync();
  unsigned wrong = 0;
  for (unsigned round = 0; round < rounds; ++round) {
    loiter(round * 8 + rank);
    *in_block(&words[rank][lane], 0) = (round * 8 + rank) * 32 + lane;
    come.arrive_in(0);
    if (rank == 0) {
      come.wait(round % 2);
      for (unsigned block = 0; block < size; ++block) {
        wrong += words[block][lane ^ 13] != (round * 8 + block) * 32 + (lane ^ 13);
      }
      for (unsigned block = 0; block < size; ++block) go.arrive_in(block);
    }
    go.wait(round % 2);
  }
  __syncwarp();
  cluster_sync();
  errors[blockIdx.x * 32 + lane] = wrong;
}

TEST_F(KitClusterGpu, ArrivesAtBarriersOfOtherBlocks) {
  for (const unsigned size : sizes) {
    SCOPED_TRACE(testing::Message() << size << " blocks");
    const DeviceArray<unsigned> errors(2 * size * 32);
    run(arrive_there, {.grid = 2 * size, .block = 32, .cluster = size}, 200U, errors.data());
    EXPECT_TRUE(same(errors.values(), [](std::size_t) { return 0U; }));
  }
}

}  // namespace
