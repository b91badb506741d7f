#include "penstock/kit/warp.cuh"

#include "gpu/kit_test.h"
#include "penstock/kit/barrier.cuh"
#include "penstock/kit/bulk.cuh"
#include "penstock/kit/fence.cuh"
#include "penstock/kit/ring.h"
#include "penstock/kit/roles.cuh"

namespace {

using ps::kit::lane_index;
using ps::kit::Role;
using ps::kit::warp_index;
using ps::test::DeviceArray;
using ps::test::loiter;
using ps::test::same;

class KitWarpGpu : public ps::test::KitSm90Test {};

__global__ void indices(unsigned* lanes, unsigned* warps, unsigned* warpgroups, unsigned* elected) {
  const unsigned me = threadIdx.x;
  lanes[me] = lane_index();
  warps[me] = warp_index();
  warpgroups[me] = ps::kit::warpgroup_index();
  unsigned times = 0;
  for (unsigned i = 0; i < 5; ++i) times += ps::kit::elect();
  elected[me] = times;
}

TEST_F(KitWarpGpu, IndicesAndElection) {
  constexpr unsigned threads = 384;
  const DeviceArray<unsigned> lanes(threads), warps(threads), warpgroups(threads), elected(threads);
  run(indices, {.block = threads}, lanes.data(), warps.data(), warpgroups.data(), elected.data());
  const auto divided = [](unsigned by) {
    return [by](std::size_t i) { return static_cast<unsigned>(i / by); };
  };
  EXPECT_TRUE(same(lanes.values(), [](std::size_t i) { return static_cast<unsigned>(i % 32); }));
  EXPECT_TRUE(same(warps.values(), divided(32)));
  EXPECT_TRUE(same(warpgroups.values(), divided(128)));
  // One thread of every warp, the same five times.
  const auto times = elected.values();
  for (unsigned warp = 0; warp < threads / 32; ++warp) {
    unsigned chosen = 0, others = 0;
    for (unsigned i = 0; i < 32; ++i) {
      chosen += times[warp * 32 + i] == 5;
      others += times[warp * 32 + i] == 0;
    }
    EXPECT_EQ(chosen, 1U) << "warp " << warp;
    EXPECT_EQ(others, 31U) << "warp " << warp;
  }
}

// Two pairs of warps, each with barriers of its own. In a pair the first warp hands words to the
// second, which hands them back.
__global__ void ping_pong(unsigned rounds, unsigned* errors) {
  __shared__ unsigned there[2][32], back[2][32];
  const unsigned pair = warp_index() / 2, lane = lane_index();
  const unsigned filled = 1 + 2 * pair, emptied = 2 + 2 * pair, threads = 64;
  unsigned wrong = 0;
  if (warp_index() % 2 == 0) {
    for (unsigned round = 0; round < rounds; ++round) {
      loiter(round);
      there[pair][lane] = round * 32 + lane;
      ps::kit::named_barrier_arrive(filled, threads);
      ps::kit::named_barrier_wait(emptied, threads);
      wrong += back[pair][lane ^ 11] != round * 32 + (lane ^ 11) + 1;
      __syncwarp();
    }
  } else {
    for (unsigned round = 0; round < rounds; ++round) {
      ps::kit::named_barrier_wait(filled, threads);
      loiter(round);
      const unsigned word = there[pair][lane ^ 19];
      wrong += word != round * 32 + (lane ^ 19);
      back[pair][lane ^ 19] = word + 1;
      __syncwarp();
      ps::kit::named_barrier_arrive(emptied, threads);
    }
  }
  errors[threadIdx.x] = wrong;
}

TEST_F(KitWarpGpu, NamedBarriers) {
  const DeviceArray<unsigned> errors(128);
  run(ping_pong, {.block = 128}, 500U, errors.data());
  EXPECT_TRUE(same(errors.values(), [](std::size_t) { return 0U; }));
}

using Three = ps::kit::Roles<1, 4, 2>;
static_assert(Three::threads == 7 * 32);

// Every role with a barrier of its own, in rounds that do not match those of the others.
__global__ void __launch_bounds__(Three::threads)
    role_rounds(unsigned* roles, unsigned* places, unsigned* errors) {
  __shared__ unsigned words[3][128];
  const Role role = Three::role();
  const unsigned number = static_cast<unsigned>(role), me = Three::index(role);
  const unsigned threads = role == Role::loader    ? Three::loader_threads
                           : role == Role::compute ? Three::compute_threads
                                                   : Three::storer_threads;
  roles[threadIdx.x] = number;
  places[threadIdx.x] = me;
  unsigned wrong = 0;
  for (unsigned round = 0; round < 50 * (number + 1); ++round) {
    loiter(round);
    words[number][me] = round * 128 + me;
    Three::sync(role);
    const unsigned other = (me + 17) % threads;
    wrong += words[number][other] != round * 128 + other;
    Three::sync(role);
  }
  errors[threadIdx.x] = wrong;
}

TEST_F(KitWarpGpu, RolesHaveTheirThreadsAndBarriers) {
  const DeviceArray<unsigned> roles(Three::threads), places(Three::threads), errors(Three::threads);
  run(role_rounds, {.block = Three::threads}, roles.data(), places.data(), errors.data());
  const auto role = [](std::size_t i) { return i < 32 ? 0U : i < 160 ? 1U : 2U; };
  EXPECT_TRUE(same(roles.values(), role));
  EXPECT_TRUE(same(places.values(), [&](std::size_t i) {
    constexpr unsigned begins[] = {0, 32, 160};
    return static_cast<unsigned>(i) - begins[role(i)];
  }));
  EXPECT_TRUE(same(errors.values(), [](std::size_t) { return 0U; }));
}

// Loader, compute and storer with a ring between each two: y = 3x + 1, tile by tile.
using Barrier = ps::test::Patient<ps::kit::Barrier>;
using Line = ps::kit::Roles<1, 2, 1>;
constexpr unsigned tile_words = 256, depth_in = 3, depth_out = 2;

__global__ void __launch_bounds__(Line::threads)
    three_roles(const std::uint32_t* in, std::uint32_t* out, unsigned tiles) {
  __shared__ alignas(128) std::uint32_t loaded[depth_in][tile_words];
  __shared__ alignas(128) std::uint32_t computed[depth_out][tile_words];
  __shared__ ps::kit::Ring<Barrier, depth_in> inward;
  __shared__ ps::kit::Ring<Barrier, depth_out> outward;
  if (threadIdx.x == 0) {
    inward.init(1, Line::compute_threads);
    outward.init(Line::compute_threads, 1);
    ps::kit::fence_barrier_init();
  }
  __syncthreads();
  const Role role = Line::role();
  if (role == Role::loader) {
    if (ps::kit::elect()) {
      ps::kit::Producer<Barrier, depth_in> producer(inward);
      for (unsigned tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const unsigned slot = producer.acquire(tile_words * 4);
        ps::kit::bulk_load(loaded[slot], in + std::size_t{tile} * tile_words, tile_words * 4,
                           producer.full(slot), ps::kit::evict_first());
      }
    }
  } else if (role == Role::compute) {
    ps::kit::Consumer<Barrier, depth_in> consumer(inward);
    ps::kit::Producer<Barrier, depth_out> producer(outward);
    for (unsigned tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      loiter(tile);
      const unsigned from = consumer.wait(), to = producer.acquire();
      for (unsigned i = Line::index(role); i < tile_words; i += Line::compute_threads) {
        computed[to][i] = loaded[from][i] * 3 + 1;
      }
      consumer.release();
      ps::kit::fence_shared_to_async();
      producer.commit();
    }
  } else if (ps::kit::elect()) {
    ps::kit::Consumer<Barrier, depth_out> consumer(outward);
    for (unsigned tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      const unsigned slot = consumer.wait();
      ps::kit::bulk_store(out + std::size_t{tile} * tile_words, computed[slot], tile_words * 4,
                          ps::kit::evict_first());
      ps::kit::bulk_commit();
      ps::kit::bulk_wait_read<0>();
      consumer.release();
    }
  }
}

TEST_F(KitWarpGpu, RolesWithTwoRings) {
  for (const unsigned tiles : {1U, 5U, 132U, 4000U}) {
    SCOPED_TRACE(testing::Message() << tiles << " tiles");
    const auto words = noise(tiles * tile_words);
    const DeviceArray<std::uint32_t> in(words), out(words.size());
    run(three_roles, {.grid = 100, .block = Line::threads}, in.data(), out.data(), tiles);
    EXPECT_TRUE(same(out.values(), [&](std::size_t i) { return words[i] * 3 + 1; }));
  }
}

// The first warpgroup gives registers, the others take them and need them: each of their threads
// holds `kept` values at once.
template <unsigned warpgroups, unsigned gives, unsigned takes, unsigned kept>
__global__ void __launch_bounds__(warpgroups * 128, warpgroups == 2 ? 2 : 1)
    hold_many(const float* in, float* out, unsigned rounds) {
  if (ps::kit::warpgroup_index() == 0) {
    ps::kit::give_registers<gives>();
    out[threadIdx.x] = in[threadIdx.x] + 1;
  } else {
    ps::kit::take_registers<takes>();
    float held[kept];
#pragma unroll
    for (unsigned i = 0; i < kept; ++i) held[i] = in[threadIdx.x * kept + i];
    for (unsigned round = 0; round < rounds; ++round) {
      // Every value changes with its neighbour: none can be left in memory.
#pragma unroll
      for (unsigned i = 0; i < kept; ++i) {
        held[i] = held[(i + 1) % kept] * 0.5F + held[i] * 0.25F;
      }
    }
#pragma unroll
    for (unsigned i = 0; i < kept; ++i) out[threadIdx.x * kept + i] = held[i];
  }
}

class KitRegistersGpu : public KitWarpGpu {
 protected:
  template <unsigned warpgroups, unsigned gives, unsigned takes, unsigned kept>
  void check() {
    // Whole numbers, halved and added a few times: exact however it is computed.
    constexpr unsigned threads = warpgroups * 128, rounds = 3;
    std::vector<float> values(threads * kept);
    for (float& value : values) value = static_cast<float>(from(-64, 64));
    const DeviceArray<float> in(values), out(values.size());
    run(hold_many<warpgroups, gives, takes, kept>, {.grid = 3, .block = threads}, in.data(),
        out.data(), rounds);
    const auto got = out.values();
    for (unsigned i = 0; i < 128; ++i) ASSERT_EQ(got[i], values[i] + 1) << "thread " << i;
    for (unsigned thread = 128; thread < threads; ++thread) {
      float* const held = values.data() + std::size_t{thread} * kept;
      for (unsigned round = 0; round < rounds; ++round) {
        for (unsigned i = 0; i < kept; ++i) {
          held[i] = held[(i + 1) % kept] * 0.5F + held[i] * 0.25F;
        }
      }
      for (unsigned i = 0; i < kept; ++i) {
        ASSERT_EQ(got[thread * kept + i], held[i]) << "thread " << thread << ", value " << i;
      }
    }
  }
};

// At the start a thread has 168 registers of three warpgroups, 128 of two where two blocks fit.
TEST_F(KitRegistersGpu, MoveAmongThreeWarpgroups) { check<3, 40, 232, 200>(); }
TEST_F(KitRegistersGpu, MoveAmongTwoWarpgroups) { check<2, 40, 208, 176>(); }

}  // namespace
