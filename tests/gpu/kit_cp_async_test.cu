#include "penstock/kit/cp_async.cuh"

#include <algorithm>
#include <type_traits>

#include "gpu/kit_test.h"

namespace {

using ps::test::DeviceArray;
using ps::test::same;

class KitCpAsyncGpu : public ps::test::KitTest {};

constexpr unsigned threads = 128;

// Thread i copies piece i, of which the first valid[i] bytes count, and writes out another one's.
template <unsigned bytes>
__global__ void copy_pieces(const unsigned char* in, const unsigned* valid, unsigned char* out) {
  __shared__ alignas(16) unsigned char pieces[threads * bytes];
  const unsigned me = threadIdx.x, other = (me + 45) % threads;
  for (unsigned i = 0; i < bytes; ++i) pieces[me * bytes + i] = ps::test::poison;
  __syncthreads();
  ps::kit::cp_async<bytes>(pieces + me * bytes, in + me * bytes, valid[me]);
  ps::kit::cp_async_commit();
  ps::kit::cp_async_wait<0>();
  __syncthreads();
  for (unsigned i = 0; i < bytes; ++i) out[other * bytes + i] = pieces[other * bytes + i];
}

// The same without saying how many bytes count.
template <unsigned bytes>
__global__ void copy_whole_pieces(const unsigned char* in, unsigned char* out) {
  __shared__ alignas(16) unsigned char pieces[threads * bytes];
  const unsigned me = threadIdx.x, other = (me + 45) % threads;
  ps::kit::cp_async<bytes>(pieces + me * bytes, in + me * bytes);
  ps::kit::cp_async_commit();
  ps::kit::cp_async_wait<0>();
  __syncthreads();
  for (unsigned i = 0; i < bytes; ++i) out[other * bytes + i] = pieces[other * bytes + i];
}

template <class Test>
void for_sizes(const Test& test) {
  test(std::integral_constant<unsigned, 4>());
  test(std::integral_constant<unsigned, 8>());
  test(std::integral_constant<unsigned, 16>());
}

TEST_F(KitCpAsyncGpu, CopiesPieces) {
  for_sizes([&](auto size) {
    SCOPED_TRACE(testing::Message() << size() << " bytes");
    const auto bytes = noise<unsigned char>(threads * size());
    const DeviceArray<unsigned char> in(bytes), out(bytes.size());
    run(copy_whole_pieces<size()>, {.block = threads}, in.data(), out.data());
    EXPECT_TRUE(same(out.values(), bytes));
  });
}

TEST_F(KitCpAsyncGpu, FillsWithZeros) {
  for_sizes([&](auto size) {
    SCOPED_TRACE(testing::Message() << size() << " bytes");
    const auto bytes = noise<unsigned char>(threads * size());
    std::vector<unsigned> valid(threads);
    for (unsigned i = 0; i < threads; ++i) valid[i] = i % (size() + 1);
    std::shuffle(valid.begin(), valid.end(), random);
    const DeviceArray<unsigned char> in(bytes), out(bytes.size());
    const DeviceArray<unsigned> counts(valid);
    run(copy_pieces<size()>, {.block = threads}, in.data(), counts.data(), out.data());
    EXPECT_TRUE(same(out.values(), [&](std::size_t i) {
      return i % size() < valid[i / size()] ? bytes[i] : static_cast<unsigned char>(0);
    }));
  });
}

constexpr unsigned groups = 4;

// After every wait the thread reads what its own oldest group has brought. The second group is
// empty and counts like the others.
__global__ void wait_for_groups(const uint4* in, uint4* out) {
  __shared__ uint4 words[groups][threads];
  const unsigned me = threadIdx.x, all = gridDim.x * threads;
  const uint4* const source = in + blockIdx.x * threads + me;
  uint4* const target = out + blockIdx.x * threads + me;
  for (unsigned group = 0; group < groups; ++group) words[group][me] = uint4{};
  __syncthreads();
  for (unsigned group = 0; group < groups; ++group) {
    ps::kit::cp_async<16>(&words[group][me], source + group * all);
    ps::kit::cp_async_commit();
    if (group == 0) ps::kit::cp_async_commit();
  }
  ps::kit::cp_async_wait<4>();
  target[0] = words[0][me];
  ps::kit::cp_async_wait<2>();
  target[all] = words[1][me];
  ps::kit::cp_async_wait<1>();
  target[2 * all] = words[2][me];
  ps::kit::cp_async_wait<0>();
  target[3 * all] = words[3][me];
}

TEST_F(KitCpAsyncGpu, WaitsForTheOldestGroups) {
  constexpr unsigned blocks = 512;
  const auto words = noise(groups * blocks * threads * 4);
  const DeviceArray<std::uint32_t> in(words), out(words.size());
  run(wait_for_groups, {.grid = blocks, .block = threads},
      reinterpret_cast<const uint4*>(in.data()), reinterpret_cast<uint4*>(out.data()));
  EXPECT_TRUE(same(out.values(), words));
}

}  // namespace
