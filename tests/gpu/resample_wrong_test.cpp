// What breaks its contract: named where that is asked for, and never more than that episode's where
// it is not.
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "gpu/resample_call.h"
#include "penstock/base/error.h"
#include "penstock/host/cuda.h"
#include "penstock/ops/resample.h"

namespace ps::test {
namespace {

// Times that decrease or are NaN, and nobody asked for a check: results are made of samples of the
// episode. Around it is NaN.
TEST_F(ResampleGpu, WrongTimesDoNotLeaveTheEpisode) {
  const Stream stream(gpu);
  std::mt19937 random(9);
  const auto number = [&] { return static_cast<double>(random()) / 4294967296.0; };
  for (const std::int64_t samples : {1, 2, 40, 3000}) {
    for (const auto mode : {Interpolation::linear, Interpolation::nearest}) {
      for (const ResampleKernel kernel : kernels) {
        const std::int64_t rows = samples + 20;
        Strided values(DType::f32, {rows, 12}), times(DType::f32, {rows}), at(DType::f32, {700}),
            out(DType::f32, {1, 700, 12}), offsets(DType::i32, {2});
        offsets.set_bits({0}, 10);
        offsets.set_bits({1}, static_cast<std::uint64_t>(10 + samples));
        for (std::int64_t i = 0; i < rows; ++i) {
          const bool within = i >= 10 && i < 10 + samples;
          times.set_bits({i}, bits_of_number(random() % 8 == 0 ? NAN : number(), DType::f32));
          for (std::int64_t k = 0; k < 12; ++k) {
            values.set_bits({i, k}, bits_of_number(within ? number() : NAN, DType::f32));
          }
        }
        for (std::int64_t i = 0; i < 700; ++i) {
          at.set_bits({i}, bits_of_number(number() * 1.2 - 0.1, DType::f32));
        }
        Copies copies(gpu, stream);
        resample({.sensors = {{.values = copies.of(values),
                               .times = copies.of(times),
                               .offsets = copies.of(offsets),
                               .mode = mode}},
                  .at = copies.of(at),
                  .out = copies.of(out),
                  .kernel = kernel},
                 stream);
        copies.fetch();
        for (std::int64_t i = 0; i < out.size(); ++i) {
          const auto bits = static_cast<std::uint32_t>(out.bits(out.index(i)));
          ASSERT_FALSE(std::isnan(std::bit_cast<float>(bits)))
              << samples << " samples, element " << i << ", kernel " << static_cast<int>(kernel);
        }
      }
    }
  }
}

// Offsets that go back or beyond, and nobody asked for a check: their episodes have no samples.
TEST_F(ResampleGpu, EpisodesOfWrongOffsetsHaveNoSamples) {
  const Stream stream(gpu), on_cpu(Device::cpu());
  std::mt19937 random(4);
  Strided values(DType::f32, {8, 6}), times(DType::f32, {8}), at(DType::f32, {3}),
      offsets(DType::i32, {6});
  for (std::int64_t i = 0; i < 8; ++i) times.set_bits({i}, bits_of_number(double(i), DType::f32));
  for (std::int64_t i = 0; i < values.size(); ++i) {
    values.set_bits(values.index(i),
                    bits_of_number(static_cast<double>(random() % 99), DType::f32));
  }
  for (std::int64_t i = 0; i < 3; ++i)
    at.set_bits({i}, bits_of_number(2.5 * double(i), DType::f32));
  constexpr std::array<std::int32_t, 6> wrong{0, 5, 3, 8, 20, -4};
  for (std::int64_t i = 0; i < 6; ++i) {
    offsets.set_bits({i}, static_cast<std::uint32_t>(wrong.at(static_cast<std::size_t>(i))));
  }
  const auto call = [&](const auto& place, Strided& out, ResampleKernel kernel) {
    return ResampleOptions{
        .sensors = {{.values = place(values), .times = place(times), .offsets = place(offsets)}},
        .at = place(at),
        .out = place(out),
        .kernel = kernel};
  };
  Strided here(DType::f32, {5, 3, 6});
  resample(call([](Strided& array) { return array.view(); }, here, ResampleKernel::best), on_cpu);
  on_cpu.synchronize();
  for (const ResampleKernel kernel : kernels) {
    Strided there(DType::f32, {5, 3, 6});
    Copies copies(gpu, stream);
    resample(call([&](Strided& array) { return copies.of(array); }, there, kernel), stream);
    copies.fetch();
    for (std::int64_t i = 0; i < there.size(); ++i) {
      const std::int64_t b = i / 18;
      const auto number = [&](Strided& from) {
        return std::bit_cast<float>(static_cast<std::uint32_t>(from.bits(from.index(i))));
      };
      if (b == 0 || b == 2) {
        ASSERT_EQ(number(there), number(here)) << "element " << i;
      } else {
        ASSERT_TRUE(std::isnan(number(there))) << "element " << i;
      }
    }
  }
}

TEST_F(ResampleGpu, ChecksNameWhatIsWrong) {
  const Stream stream(gpu);
  const auto message = [&](Strided times, Strided at, bool check, Outside outside) {
    Copies copies(gpu, stream);
    Strided values(DType::f32, {3, 4, 2}), out(DType::f32, {3, 2, 2});
    try {
      resample({.sensors = {{.values = copies.of(values), .times = copies.of(times)}},
                .at = copies.of(at),
                .out = copies.of(out),
                .outside = outside,
                .check = check},
               stream);
    } catch (const InvalidArgument& error) {
      return error.argument() + ": " + error.given();
    }
    return std::string("nothing");
  };
  const auto floats = [](std::vector<std::int64_t> shape, const std::vector<float>& values) {
    Strided array(DType::f32, std::move(shape));
    for (std::size_t i = 0; i < values.size(); ++i) {
      array.set_bits(array.index(static_cast<std::int64_t>(i)),
                     bits_of_number(values[i], DType::f32));
    }
    return array;
  };
  const Strided at = floats({2}, {1, 2});
  const Strided good = floats({3, 4}, {0, 1, 2, 3, 0, 1, 1, 3, 0, 1, 2, 3});
  const Strided unsorted = floats({3, 4}, {0, 1, 2, 3, 0, 1, 0.5F, 3, 0, 1, 2, 1});
  const Strided nan = floats({3, 4}, {0, 1, 2, 3, 0, 1, 2, 3, 0, NAN, 2, 1});
  EXPECT_EQ(message(good, at, true, Outside::error), "nothing");
  EXPECT_EQ(message(unsorted, at, true, Outside::clamp),
            "sensors[0].times: a smaller one at (b, s) = (1, 2)");
  EXPECT_EQ(message(nan, at, true, Outside::clamp), "sensors[0].times: NaN at (b, s) = (2, 1)");
  EXPECT_EQ(message(good, floats({2}, {1, 3.5F}), false, Outside::error),
            "at: one that is not, at (b, t) = (0, 1)");
}

// A check waits for what it finds: while a stream is captured it is refused, and leaves nothing.
TEST_F(ResampleGpu, ChecksAreRefusedWhileCapturing) {
  const Stream stream(gpu);
  const DeviceBuffer memory(gpu, 4096);
  fill(memory.view(), 0, stream);
  stream.synchronize();
  const Place place = memory.view().place;
  const TensorView values(memory.view().data, DType::f32, {1, 4, 2}, place),
      times(memory.view().data + 1024, DType::f32, {4}, place),
      at(memory.view().data + 2048, DType::f32, {3}, place),
      out(memory.view().data + 3072, DType::f32, {1, 3, 2}, place);
  const std::array<std::function<void()>, 3> calls{
      [&] {
        resample(
            {.sensors = {{.values = values, .times = times}}, .at = at, .out = out, .check = true},
            stream);
      },
      [&] {
        resample({.sensors = {{.values = values, .times = times}},
                  .at = at,
                  .out = out,
                  .outside = Outside::error},
                 stream);
      },
      [&] {
        resample_gradient(
            {.gradient = out, .times = times, .at = at, .out = values, .outside = Outside::error},
            stream);
      }};
  for (const auto& call : calls) {
    const cudaStream_t on = cuda_stream(stream);
    ASSERT_EQ(cudaStreamBeginCapture(on, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    EXPECT_THROW(call(), Unsupported);
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(on, &graph), cudaSuccess);
    std::size_t nodes = 1;
    EXPECT_EQ(cudaGraphGetNodes(graph, nullptr, &nodes), cudaSuccess);
    EXPECT_EQ(nodes, 0u);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    EXPECT_NO_THROW(call());
  }
}

}  // namespace
}  // namespace ps::test
