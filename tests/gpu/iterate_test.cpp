#include "penstock/ops/iterate.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <random>

#include "penstock/base/error.h"
#include "penstock/host/buffer.h"
#include "penstock/host/cuda.h"

namespace {

constexpr std::uint8_t poison = 0xFF;  // four of them are a NaN

class IterateGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (ps::Device::best().kind() != ps::DeviceKind::cuda) GTEST_SKIP() << "no GPU";
  }

  // Runs `count` elements with both views `offset` floats off their 256-byte boundary, and checks
  // every element and a margin on both sides.
  static void check(std::size_t count, std::size_t in_offset, std::size_t out_offset, int rounds,
                    int blocks = 0) {
    SCOPED_TRACE(testing::Message()
                 << count << " elements, offsets " << in_offset << " and " << out_offset << ", "
                 << rounds << " rounds, " << blocks << " blocks");
    const ps::Device device = ps::Device::best();
    const ps::Stream stream(device);
    const std::size_t floats = count + 16, bytes = floats * sizeof(float);
    const ps::PinnedBuffer in(device, bytes), out(device, bytes);
    const ps::DeviceBuffer source(device, bytes), target(device, bytes);
    std::mt19937 generator(static_cast<unsigned>(count));
    std::uniform_real_distribution<float> uniform(-4.0F, 4.0F);
    for (std::size_t i = 0; i < floats; ++i) in.view().as<float>()[i] = uniform(generator);

    ps::copy(source.view(), in.view(), stream);
    ps::fill(target.view(), poison, stream);
    ps::iterate({.in = part(source, in_offset, count),
                 .out = part(target, out_offset, count),
                 .rounds = rounds,
                 .blocks = blocks},
                stream);
    ps::copy(out.view(), target.view(), stream);
    stream.synchronize();

    for (std::size_t i = 0; i < floats; ++i) {
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

  static ps::TensorView part(const ps::DeviceBuffer& buffer, std::size_t offset,
                             std::size_t count) {
    return {buffer.view().as<float>() + offset,
            ps::DType::f32,
            {static_cast<std::int64_t>(count)},
            buffer.view().place};
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
  const ps::Device device = ps::Device::best();
  const ps::Stream stream(device);
  constexpr std::size_t count = 100'001;
  const ps::PinnedBuffer host(device, count * sizeof(float));
  const ps::DeviceBuffer data(device, count * sizeof(float));
  auto* values = host.view().as<float>();
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i);
  ps::copy(data.view(), host.view(), stream);
  ps::iterate({.in = part(data, 0, count), .out = part(data, 0, count), .rounds = 6}, stream);
  ps::copy(host.view(), data.view(), stream);
  stream.synchronize();
  for (std::size_t i = 0; i < count; ++i) {
    ASSERT_EQ(values[i], ps::iterated(static_cast<float>(i), 6)) << "element " << i;
  }
}

TEST_F(IterateGpu, MayBeCaptured) {
  const ps::Device device = ps::Device::best();
  const ps::Stream stream(device);
  constexpr std::size_t count = 1000;
  const ps::PinnedBuffer host(device, count * sizeof(float));
  const ps::DeviceBuffer data(device, count * sizeof(float));
  std::memset(host.view().data, 0, count * sizeof(float));
  ps::copy(data.view(), host.view(), stream);
  stream.synchronize();

  cudaGraph_t graph = nullptr;
  cudaGraphExec_t runnable = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(ps::cuda_stream(stream), cudaStreamCaptureModeGlobal),
            cudaSuccess);
  ps::iterate({.in = part(data, 0, count), .out = part(data, 0, count), .rounds = 4}, stream);
  ASSERT_EQ(cudaStreamEndCapture(ps::cuda_stream(stream), &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&runnable, graph, 0), cudaSuccess);
  for (int launch = 0; launch < 3; ++launch) {
    ASSERT_EQ(cudaGraphLaunch(runnable, ps::cuda_stream(stream)), cudaSuccess);
  }
  ps::copy(host.view(), data.view(), stream);
  stream.synchronize();
  EXPECT_EQ(host.view().as<float>()[count - 1], ps::iterated(0.0F, 12));
  EXPECT_EQ(cudaGraphExecDestroy(runnable), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(IterateGpu, RefusesHostMemory) {
  const ps::Device device = ps::Device::best();
  const ps::Stream stream(device);
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
