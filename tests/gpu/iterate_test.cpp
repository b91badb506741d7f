#include "penstock/ops/iterate.h"

#include <bit>
#include <cstdint>
#include <random>

#include "gpu/gpu_test.h"
#include "penstock/base/error.h"
#include "penstock/host/buffer.h"

namespace {

using ps::test::floats;

class IterateGpu : public ps::test::GpuTest {
 protected:
  // Runs `count` elements with both views `offset` floats off their 256-byte boundary, and checks
  // every element and a margin on both sides.
  void check(std::size_t count, std::size_t in_offset, std::size_t out_offset, int rounds,
             int blocks = 0) const {
    SCOPED_TRACE(testing::Message()
                 << count << " elements, offsets " << in_offset << " and " << out_offset << ", "
                 << rounds << " rounds, " << blocks << " blocks");
    const ps::Stream stream(gpu);
    const std::size_t all = count + 16, bytes = all * sizeof(float);
    const ps::PinnedBuffer in(gpu, bytes), out(gpu, bytes);
    const ps::DeviceBuffer source(gpu, bytes), target(gpu, bytes);
    std::mt19937 generator(static_cast<unsigned>(count));
    std::uniform_real_distribution<float> uniform(-4.0F, 4.0F);
    for (std::size_t i = 0; i < all; ++i) in.view().as<float>()[i] = uniform(generator);

    ps::copy(source.view(), in.view(), stream);
    ps::fill(target.view(), ps::test::poison, stream);
    ps::iterate({.in = floats(source.view(), in_offset, count),
                 .out = floats(target.view(), out_offset, count),
                 .rounds = rounds,
                 .blocks = blocks},
                stream);
    ps::copy(out.view(), target.view(), stream);
    stream.synchronize();

    for (std::size_t i = 0; i < all; ++i) {
      const bool inside = i >= out_offset && i < out_offset + count;
      const auto got = std::bit_cast<std::uint32_t>(out.view().as<float>()[i]);
      if (inside) {
        const float x = in.view().as<float>()[i - out_offset + in_offset];
        ASSERT_EQ(got, std::bit_cast<std::uint32_t>(ps::iterated(x, rounds))) << "element " << i;
      } else {
        ASSERT_EQ(got, 0xFFFFFFFFU) << "element " << i << " is outside and was written";
      }
    }
  }
};

TEST_F(IterateGpu, AnySize) {
  for (const std::size_t count : {1, 3, 4, 5, 2047, 2048, 2049, 4097, 1'000'003}) {
    check(count, 0, 0, 9);
  }
}

TEST_F(IterateGpu, AnyAlignment) {
  for (std::size_t in_offset = 0; in_offset < 4; ++in_offset) {
    for (std::size_t out_offset = 0; out_offset < 4; ++out_offset) {
      for (const std::size_t count : {1, 2, 3, 4, 4099}) check(count, in_offset, out_offset, 3);
    }
  }
}

TEST_F(IterateGpu, AnyRounds) {
  for (const int rounds : {0, 1, 2, 3, 4, 5, 1001}) check(4097, 0, 0, rounds);
}

TEST_F(IterateGpu, FewBlocksDoAllTheWork) {
  for (const int blocks : {1, 2, 7}) check(1'000'003, 0, 0, 2, blocks);
}

TEST_F(IterateGpu, WorksInPlace) {
  const ps::Stream stream(gpu);
  constexpr std::size_t count = 100'001;
  const ps::PinnedBuffer host(gpu, count * sizeof(float));
  const ps::DeviceBuffer data(gpu, count * sizeof(float));
  auto* values = host.view().as<float>();
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i);
  ps::copy(data.view(), host.view(), stream);
  ps::iterate(
      {.in = floats(data.view(), 0, count), .out = floats(data.view(), 0, count), .rounds = 6},
      stream);
  ps::copy(host.view(), data.view(), stream);
  stream.synchronize();
  for (std::size_t i = 0; i < count; ++i) {
    ASSERT_EQ(values[i], ps::iterated(static_cast<float>(i), 6)) << "element " << i;
  }
}

TEST_F(IterateGpu, RefusesHostMemory) {
  const ps::Stream stream(gpu);
  float value = 0;
  const ps::TensorView host(&value, ps::DType::f32, {1});
  try {
    ps::iterate({.in = host, .out = host}, stream);
    FAIL() << "accepted memory that the GPU cannot reach";
  } catch (const ps::InvalidArgument& error) {
    EXPECT_EQ(error.argument(), "in");
  }
}

}  // namespace
