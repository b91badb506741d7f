#include "penstock/kit/bulk.cuh"

#include <set>

#include "gpu/kit_test.h"
#include "penstock/kit/barrier.cuh"
#include "penstock/kit/cluster.cuh"
#include "penstock/kit/fence.cuh"

namespace {

using ps::test::aligned_shared;
using ps::test::DeviceArray;
using ps::test::fill_shared;
using ps::test::hint_of;
using ps::test::hints;
using ps::test::same;

using Barrier = ps::test::Patient<ps::kit::Barrier>;
using Bytes = std::vector<unsigned char>;

constexpr unsigned margin = 64;

// Whether the middle is `want` and a margin on both sides is poison.
testing::AssertionResult in_the_middle(const Bytes& got, const unsigned char* want) {
  return same(got, [&](std::size_t i) {
    return i < margin || i >= got.size() - margin ? ps::test::poison : want[i - margin];
  });
}

class KitBulkGpu : public ps::test::KitSm90Test {};

__global__ void policies(std::uint64_t* out) {
  for (unsigned i = 0; i < hints; ++i) out[i] = hint_of(i).policy;
}

TEST_F(KitBulkGpu, HintsDiffer) {
  const DeviceArray<std::uint64_t> out(hints);
  run(policies, {}, out.data());
  const auto found = out.values();
  EXPECT_EQ(std::set(found.begin(), found.end()).size(), hints) << testing::PrintToString(found);
}

__global__ void load(const unsigned char* in, unsigned bytes, unsigned hint, unsigned char* out) {
  __shared__ Barrier full;
  unsigned char* const shared = aligned_shared();
  const unsigned all = bytes + 2 * margin;
  if (threadIdx.x == 0) {
    full.init(1);
    ps::kit::fence_barrier_init();
  }
  fill_shared(shared, all, ps::test::poison);
  if (threadIdx.x == 0) {
    ps::kit::bulk_prefetch(in, bytes);
    full.arrive_expect(bytes);
    if (hint == hints) {
      ps::kit::bulk_load(shared + margin, in, bytes, full);
    } else {
      ps::kit::bulk_load(shared + margin, in, bytes, full, hint_of(hint));
    }
  }
  full.wait(0);
  for (unsigned i = threadIdx.x; i < all; i += blockDim.x) out[i] = shared[i];
}

TEST_F(KitBulkGpu, Loads) {
  constexpr unsigned offset = 48;
  for (const unsigned bytes : {16U, 32U, 48U, 1024U, 4112U, 98304U}) {
    const Bytes values = noise<unsigned char>(bytes + offset);
    const DeviceArray<unsigned char> in(values);
    for (unsigned hint = 0; hint <= hints; ++hint) {
      SCOPED_TRACE(testing::Message() << bytes << " bytes, hint " << hint);
      const DeviceArray<unsigned char> out(bytes + 2 * margin);
      run(load, {.block = 256, .shared_bytes = bytes + 2 * margin + 1024}, in.data() + offset,
          bytes, hint, out.data());
      EXPECT_TRUE(in_the_middle(out.values(), values.data() + offset));
    }
  }
}

// Block 1 loads for the blocks whose bit is set.
__global__ void load_multicast(const unsigned char* in, unsigned bytes, std::uint16_t blocks,
                               unsigned hint, unsigned char* out) {
  __shared__ Barrier full;
  unsigned char* const shared = aligned_shared();
  const unsigned all = bytes + 2 * margin, rank = ps::kit::cluster_rank();
  const bool meant = (blocks >> rank & 1) != 0;
  fill_shared(shared, all, ps::test::poison);
  if (threadIdx.x == 0) {
    full.init(1);
    ps::kit::fence_barrier_init();
    if (meant) full.arrive_expect(bytes);
  }
  __syncwarp();
  ps::kit::cluster_sync();
  if (rank == 1 && threadIdx.x == 0) {
    if (hint == hints) {
      ps::kit::bulk_load_multicast(shared + margin, in, bytes, full, blocks);
    } else {
      ps::kit::bulk_load_multicast(shared + margin, in, bytes, full, blocks, hint_of(hint));
    }
  }
  __syncwarp();
  if (meant) full.wait(0);
  ps::kit::cluster_sync();  // all that was sent has arrived
  for (unsigned i = threadIdx.x; i < all; i += blockDim.x) out[rank * all + i] = shared[i];
}

TEST_F(KitBulkGpu, LoadsForSeveralBlocks) {
  constexpr unsigned bytes = 2048, all = bytes + 2 * margin, size = 4;
  const Bytes values = noise<unsigned char>(bytes);
  const DeviceArray<unsigned char> in(values);
  for (const unsigned blocks : {0b0010U, 0b0001U, 0b1011U, 0b1111U}) {
    for (unsigned hint = 0; hint <= hints; ++hint) {
      SCOPED_TRACE(testing::Message() << "blocks " << blocks << ", hint " << hint);
      const DeviceArray<unsigned char> out(size * all);
      run(load_multicast, {.grid = size, .block = 128, .shared_bytes = all + 1024, .cluster = size},
          in.data(), bytes, static_cast<std::uint16_t>(blocks), hint, out.data());
      EXPECT_TRUE(same(out.values(), [&](std::size_t i) {
        const std::size_t block = i / all, at = i % all;
        const bool written = (blocks >> block & 1) != 0 && at >= margin && at < all - margin;
        return written ? values[at - margin] : ps::test::poison;
      }));
    }
  }
}

// Every block sends its bytes to the next one.
__global__ void send(const unsigned char* in, unsigned bytes, unsigned char* out) {
  __shared__ Barrier full;
  unsigned char* const inbox = aligned_shared();
  const unsigned all = bytes + 2 * margin;
  unsigned char* const own = inbox + all;
  const unsigned rank = ps::kit::cluster_rank(), size = ps::kit::cluster_size();
  for (unsigned i = threadIdx.x; i < bytes; i += blockDim.x) own[i] = in[blockIdx.x * bytes + i];
  fill_shared(inbox, all, ps::test::poison);  // and own[] is ready for the copy as well
  if (threadIdx.x == 0) {
    full.init(1);
    ps::kit::fence_barrier_init();
    full.arrive_expect(bytes);
  }
  __syncwarp();
  ps::kit::cluster_sync();
  if (threadIdx.x == 0) {
    ps::kit::bulk_send(inbox + margin, own, bytes, full, (rank + 1) % size);
  }
  full.wait(0);
  for (unsigned i = threadIdx.x; i < all; i += blockDim.x) out[blockIdx.x * all + i] = inbox[i];
  __syncwarp();
  ps::kit::cluster_sync();  // nobody sends to or reads from a block that has ended
}

TEST_F(KitBulkGpu, SendsToAnotherBlock) {
  for (const unsigned size : {2U, 4U, 8U}) {
    for (const unsigned bytes : {16U, 4096U, 10016U}) {
      SCOPED_TRACE(testing::Message() << size << " blocks, " << bytes << " bytes");
      const unsigned blocks = 3 * size, all = bytes + 2 * margin;
      const Bytes values = noise<unsigned char>(blocks * bytes);
      const DeviceArray<unsigned char> in(values), out(blocks * all);
      run(send, {.grid = blocks, .block = 128, .shared_bytes = all + bytes + 1024, .cluster = size},
          in.data(), bytes, out.data());
      EXPECT_TRUE(same(out.values(), [&](std::size_t i) {
        const std::size_t block = i / all, at = i % all;
        if (at < margin || at >= all - margin) return ps::test::poison;
        const std::size_t from = block / size * size + (block + size - 1) % size;
        return values[from * bytes + at - margin];
      }));
    }
  }
}

__global__ void store(const unsigned char* in, unsigned bytes, unsigned hint, unsigned char* out) {
  unsigned char* const shared = aligned_shared();
  for (unsigned i = threadIdx.x; i < bytes; i += blockDim.x) shared[i] = in[i];
  ps::kit::fence_shared_to_async();
  __syncthreads();
  if (threadIdx.x != 0) return;
  if (hint == hints) {
    ps::kit::bulk_store(out, shared, bytes);
  } else {
    ps::kit::bulk_store(out, shared, bytes, hint_of(hint));
  }
  ps::kit::bulk_commit();
  ps::kit::bulk_wait<0>();
}

TEST_F(KitBulkGpu, Stores) {
  for (const unsigned bytes : {16U, 32U, 48U, 1024U, 4112U, 98304U}) {
    const Bytes values = noise<unsigned char>(bytes);
    const DeviceArray<unsigned char> in(values);
    for (unsigned hint = 0; hint <= hints; ++hint) {
      SCOPED_TRACE(testing::Message() << bytes << " bytes, hint " << hint);
      const DeviceArray<unsigned char> out(bytes + 2 * margin);
      run(store, {.block = 256, .shared_bytes = bytes + 1024}, in.data(), bytes, hint,
          out.data() + margin);
      EXPECT_TRUE(in_the_middle(out.values(), values.data()));
    }
  }
}

// What was stored is in global memory after bulk_wait: the same thread reads it back.
__global__ void store_and_read(unsigned char* scratch, unsigned bytes, unsigned* errors) {
  unsigned char* const shared = aligned_shared();
  unsigned char* const mine = scratch + blockIdx.x * bytes;
  const auto value = [&](unsigned round, unsigned i) {
    return static_cast<unsigned char>(round * 31 + i * 7 + blockIdx.x);
  };
  unsigned wrong = 0;
  for (unsigned round = 0; round < 20; ++round) {
    for (unsigned i = threadIdx.x; i < bytes; i += blockDim.x) shared[i] = value(round, i);
    ps::kit::fence_shared_to_async();
    __syncthreads();
    if (threadIdx.x == 0) {
      ps::kit::bulk_store(mine, shared, bytes);
      ps::kit::bulk_commit();
      ps::kit::bulk_wait<0>();
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < bytes; i += blockDim.x) {
      wrong += *static_cast<volatile unsigned char*>(mine + i) != value(round, i);
    }
    __syncthreads();
  }
  atomicAdd(errors + blockIdx.x, wrong);
}

TEST_F(KitBulkGpu, StoresAreThereAfterTheWait) {
  constexpr unsigned blocks = 64, bytes = 4096;
  const DeviceArray<unsigned char> scratch(blocks * bytes);
  const DeviceArray<unsigned> errors(std::vector<unsigned>(blocks, 0));
  run(store_and_read, {.grid = blocks, .block = 128, .shared_bytes = bytes + 1024}, scratch.data(),
      bytes, errors.data());
  EXPECT_TRUE(same(errors.values(), [](std::size_t) { return 0U; }));
}

// Two buffers by turns: one is filled again when the store before the last has read it.
__global__ void store_by_turns(const std::uint32_t* in, std::uint32_t* out, unsigned rounds) {
  __shared__ alignas(16) std::uint32_t buffers[2][1024];
  const std::size_t begin = std::size_t{blockIdx.x} * rounds * 1024;
  for (unsigned round = 0; round < rounds; ++round) {
    if (threadIdx.x == 0) ps::kit::bulk_wait_read<1>();
    __syncthreads();
    for (unsigned i = threadIdx.x; i < 1024; i += blockDim.x) {
      buffers[round % 2][i] = in[begin + round * 1024 + i];
    }
    ps::kit::fence_shared_to_async();
    __syncthreads();
    if (threadIdx.x == 0) {
      ps::kit::bulk_store(out + begin + round * 1024, buffers[round % 2], 4096);
      ps::kit::bulk_commit();
    }
  }
  if (threadIdx.x == 0) ps::kit::bulk_wait_read<0>();
}

TEST_F(KitBulkGpu, BuffersAreFreeOnceRead) {
  constexpr unsigned blocks = 132, rounds = 32;
  const auto words = noise(std::size_t{blocks} * rounds * 1024);
  const DeviceArray<std::uint32_t> in(words), out(words.size());
  run(store_by_turns, {.grid = blocks, .block = 256}, in.data(), out.data(), rounds);
  EXPECT_TRUE(same(out.values(), words));
}

// All blocks add their floats to the same ones.
__global__ void add(const float* in, unsigned count, float* sums) {
  auto* const shared = reinterpret_cast<float*>(aligned_shared());
  for (unsigned i = threadIdx.x; i < count; i += blockDim.x) {
    shared[i] = in[blockIdx.x * count + i];
  }
  ps::kit::fence_shared_to_async();
  __syncthreads();
  if (threadIdx.x != 0) return;
  ps::kit::bulk_add(sums, shared, count * 4);
  ps::kit::bulk_commit();
  ps::kit::bulk_wait<0>();
}

TEST_F(KitBulkGpu, Adds) {
  // Whole numbers: the sums are exact in any order.
  constexpr unsigned blocks = 100, count = 1028;
  std::vector<float> values(blocks * count), sums(count + 4);
  for (float& value : values) value = static_cast<float>(from(-1000, 1000));
  for (float& sum : sums) sum = static_cast<float>(from(-1000, 1000));
  const DeviceArray<float> in(values), out(sums);
  run(add, {.grid = blocks, .block = 128, .shared_bytes = count * 4 + 1024}, in.data(), count,
      out.data());
  for (unsigned i = 0; i < blocks * count; ++i) sums[i % count] += values[i];
  EXPECT_TRUE(same(out.values(), sums));
}

}  // namespace
