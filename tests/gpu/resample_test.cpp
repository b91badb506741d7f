#include "penstock/ops/resample.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "gpu/resample_call.h"
#include "gpu/resample_large.h"
#include "penstock/base/error.h"
#include "penstock/host/cuda.h"

namespace ps::test {
namespace {

TEST_F(ResampleGpu, AgreesWithAPlainSearch) {
  const Stream stream(gpu);
  for (std::uint32_t seed = 1; seed <= 1500; ++seed) {
    RandomResample call(seed);
    Copies copies(gpu, stream);
    ResampleOptions options = call.placed([&](Strided& array) { return copies.of(array); });
    options.kernel = kernels[seed % kernels.size()];
    resample(options, stream);
    copies.fetch();
    ASSERT_EQ(call.wrong(), "") << "with seed " << seed;
  }
}

// In every mode, by every kernel.
void expect_the_bits_of_the_cpu(const Device& gpu, std::span<const Shape> all) {
  const Stream stream(gpu), on_cpu(Device::cpu());
  std::uint32_t seed = 1;
  for (const Shape& shape : all) {
    for (const auto mode : {Interpolation::linear, Interpolation::nearest, Interpolation::previous,
                            Interpolation::next}) {
      if (mode == Interpolation::linear && !is_floating(shape.type)) continue;
      for (const auto outside : {Outside::clamp, Outside::fill, Outside::extrapolate}) {
        ++seed;
        const ResampleCall fresh(shape, seed);
        ResampleCall here = fresh;
        resample(here.options([](Strided& array) { return array.view(); }, mode, outside), on_cpu);
        on_cpu.synchronize();
        for (const ResampleKernel kernel : kernels) {
          ResampleCall there = fresh;
          Copies copies(gpu, stream);
          const auto place = [&](Strided& array) { return copies.of(array); };
          ResampleOptions options = there.options(place, mode, outside);
          options.kernel = kernel;
          resample(options, stream);
          copies.fetch();
          const std::string which = "with seed " + std::to_string(seed) + ", kernel " +
                                    std::to_string(static_cast<int>(kernel));
          ASSERT_EQ(here.out().bytes(), there.out().bytes()) << which;
          ASSERT_EQ(here.valid().bytes(), there.valid().bytes()) << which;
        }
      }
    }
  }
}

TEST_F(ResampleGpu, GivesTheBitsOfTheCpu) { expect_the_bits_of_the_cpu(gpu, shapes); }

TEST_F(ResampleGpu, ShortEpisodesHaveTheBitsOfTheCpu) {
  expect_the_bits_of_the_cpu(gpu, short_shapes);
}

// Of which a block has few times at hand: margins around them leave the place itself in the middle.
TEST_F(ResampleGpu, LongEpisodesHaveTheBitsOfTheCpu) {
  constexpr std::array long_shapes{
      Shape{2, 60'000, 3000, 8, DType::f32, DType::f64, true, false},
      Shape{1, 70'000, 2000, 16, DType::bf16, DType::i64, false, false},
      Shape{2, 300'000, 500, 5, DType::f32, DType::f32, false, true},
  };
  expect_the_bits_of_the_cpu(gpu, long_shapes);
}

// Rows of one sensor by every kernel, rows of several by their own: bit by bit as on the CPU.
TEST_F(ResampleGpu, LargeCallsHaveTheBitsOfTheCpu) {
  const Stream stream(gpu), on_cpu(Device::cpu());
  for (std::uint32_t seed = 1; seed <= 240; ++seed) {
    const bool whole = seed % 2 == 0;
    const LargeResample fresh(seed, whole);
    LargeResample here = fresh;
    resample(here.options([](Strided& array) { return array.view(); }), on_cpu);
    on_cpu.synchronize();
    for (const ResampleKernel kernel : kernels) {
      if (!whole && kernel != ResampleKernel::best) continue;
      LargeResample there = fresh;
      Copies copies(gpu, stream);
      ResampleOptions options = there.options([&](Strided& array) { return copies.of(array); });
      options.kernel = kernel;
      resample(options, stream);
      copies.fetch();
      const std::string which = "with seed " + std::to_string(seed) + ", kernel " +
                                std::to_string(static_cast<int>(kernel));
      ASSERT_EQ(here.out(), there.out()) << which;
      ASSERT_EQ(here.valid(), there.valid()) << which;
    }
  }
}

// Rows of several sensors that shared memory has no room for, with something between them, and more
// ranges than one launch takes.
TEST_F(ResampleGpu, LongRowsHaveTheBitsOfTheCpu) {
  const Stream stream(gpu), on_cpu(Device::cpu());
  for (const DType type : {DType::f32, DType::bf16, DType::u8}) {
    std::mt19937 random(17);
    Strided values(type, {2, 20, 9500}), more(type, {2, 25, 6003}), times(DType::f32, {20}),
        more_times(DType::f32, {2, 25}), at(DType::f32, {2, 33});
    for (Strided* each : {&values, &more}) {
      for (std::int64_t i = 0; i < each->size(); ++i) {
        const auto bits = static_cast<std::uint64_t>(random());
        const auto number = static_cast<double>(bits % 1000) / 500 - 1;
        each->set_bits(each->index(i), is_floating(type) ? bits_of_number(number, type) : bits);
      }
    }
    for (Strided* each : {&times, &more_times, &at}) {
      const std::int64_t length = each->shape().back();
      for (std::int64_t i = 0; i < each->size(); ++i) {
        const double t = static_cast<double>(i % length) / static_cast<double>(length - 1);
        each->set_bits(each->index(i), bits_of_number(t, DType::f32));
      }
    }
    const auto other = is_floating(type) ? Interpolation::linear : Interpolation::next;
    // More than a launch takes.
    std::vector<Columns> many;
    for (std::int64_t i = 0; i < 31; ++i) {
      many.push_back({.begin = 11 * i, .end = 11 * i + 1 + i % 9, .mode = other});
    }
    const auto run = [&](const Stream& on, const auto& place, Strided& out) {
      resample({.sensors = {{.values = place(values),
                             .times = place(times),
                             .mode = Interpolation::nearest,
                             .columns = {{.begin = 7, .end = 9001, .mode = other}}},
                            {.values = place(more),
                             .times = place(more_times),
                             .mode = Interpolation::previous,
                             .columns = many}},
                .at = place(at),
                .out = place(out)},
               on);
    };
    Strided here(type, {2, 33, 15503}, {.plain = false, .row = true}, random), there = here;
    run(on_cpu, [](Strided& array) { return array.view(); }, here);
    on_cpu.synchronize();
    Copies copies(gpu, stream);
    run(stream, [&](Strided& array) { return copies.of(array); }, there);
    copies.fetch();
    EXPECT_EQ(here.bytes(), there.bytes());
  }
}

// Blocks of many targets with rows of several parts, columns apart from each other, and several
// quaternions, which are near to the CPU's.
TEST_F(ResampleGpu, ManyRowsOfSeveralSensorsAreThoseOfTheCpu) {
  const Stream stream(gpu), on_cpu(Device::cpu());
  constexpr std::int64_t episodes = 24, samples = 60, targets = 700;
  std::mt19937 random(23);
  const auto number = [&] { return static_cast<double>(random()) / 4294967296.0; };
  std::vector<Strided> values;
  for (const std::int64_t columns : {33, 67, 41}) {
    const Layout layout{.plain = columns != 41};
    values.emplace_back(DType::f32, std::vector{episodes, samples, columns}, layout, random);
  }
  values.emplace_back(DType::f32, std::vector{episodes, samples, std::int64_t{12}});
  Strided times(DType::f32, {episodes, samples}), at(DType::f32, {episodes, targets});
  for (Strided& each : values) {
    for (std::int64_t i = 0; i < each.size(); ++i) {
      each.set_bits(each.index(i), bits_of_number(number() + 0.1, DType::f32));
    }
  }
  for (Strided* each : {&times, &at}) {
    const std::int64_t length = each->shape().back();
    for (std::int64_t i = 0; i < each->size(); ++i) {
      const double t = (static_cast<double>(i % length) + number()) / static_cast<double>(length);
      each->set_bits(each->index(i), bits_of_number(t, DType::f32));
    }
  }
  const auto run = [&](const Stream& on, const auto& place, Strided& out) {
    ResampleOptions options{.at = place(at), .out = place(out)};
    for (Strided& each : values) {
      options.sensors.push_back({.values = place(each), .times = place(times)});
    }
    options.sensors.back().mode = Interpolation::slerp;
    resample(options, on);
  };
  Strided here(DType::f32, {episodes, targets, 153}), there = here;
  run(on_cpu, [](Strided& array) { return array.view(); }, here);
  on_cpu.synchronize();
  Copies copies(gpu, stream);
  run(stream, [&](Strided& array) { return copies.of(array); }, there);
  copies.fetch();
  for (std::int64_t i = 0; i < here.size(); ++i) {
    const auto place = here.index(i);
    const auto want = static_cast<std::uint32_t>(here.bits(place));
    const auto have = static_cast<std::uint32_t>(there.bits(place));
    if (place[2] < 141) {
      ASSERT_EQ(want, have) << "element " << i;
    } else {
      ASSERT_NEAR(std::bit_cast<float>(want), std::bit_cast<float>(have), 1e-6) << "element " << i;
    }
  }
}

// A sensor whose sample s is a row of s at the time s, `apart` elements behind the one before.
void expect_samples_found(const Device& gpu, std::int64_t apart, std::int64_t samples) {
  constexpr std::int64_t columns = 64;
  constexpr std::size_t row = columns * sizeof(float);
  const Stream stream(gpu);
  const std::int64_t reach = std::abs(apart) * (samples - 1);
  const DeviceBuffer values(gpu, (reach + columns) * sizeof(float)), rest(gpu, 4096 + 3 * row);
  const std::int64_t first = apart < 0 ? reach : 0;  // element
  std::vector<float> times;
  for (std::int64_t s = 0; s < samples; ++s) {
    times.push_back(static_cast<float>(s));
    send(values.view(), (first + s * apart) * sizeof(float),
         std::vector<float>(columns, times.back()), stream);
  }
  send(rest.view(), 0, times, stream);
  send(rest.view(), 1024, std::vector<float>{-1, 0.5F, times.back()}, stream);

  const Place place = rest.view().place;
  const std::array<std::int64_t, 3> shape = {1, samples, columns}, strides = {0, apart, 1};
  const MemoryView out = rest.view().sub(4096, 3 * row);
  for (const ResampleKernel kernel : kernels) {
    fill(out, 0xff, stream);
    resample({.sensors = {{.values = {values.view().as<float>() + first, DType::f32, shape, strides,
                                      place},
                           .times = {rest.view().data, DType::f32, {samples}, place}}},
              .at = {rest.view().data + 1024, DType::f32, {3}, place},
              .out = {out.data, DType::f32, {1, 3, columns}, place},
              .kernel = kernel},
             stream);
    const auto results = fetch<float>(out, 0, 3 * columns, stream);
    const std::array<float, 3> want = {0, 0.5F, times.back()};
    for (std::size_t i = 0; i < results.size(); ++i) {
      ASSERT_EQ(results[i], want[i / columns])
          << apart << " apart, element " << i << ", kernel " << static_cast<int>(kernel);
    }
  }
}

TEST_F(ResampleGpu, RowsMayStandBackwards) { expect_samples_found(gpu, -64, 5); }

// Behind 4 GiB, and more than an int has from one to the next.
TEST_F(ResampleGpu, RowsMayLieGibibytesApart) {
  expect_samples_found(gpu, std::int64_t{1} << 28, 5);
  expect_samples_found(gpu, (std::int64_t{1} << 29) + 16, 2);
}

// So many that none are looked at ahead; an episode of one sample among them knows no other.
TEST_F(ResampleGpu, EpisodesOfManySamplesKeepToTheirOwn) {
  constexpr std::int64_t samples = std::int64_t{1} << 29;
  const Stream stream(gpu);
  const DeviceBuffer values(gpu, samples), rest(gpu, 4096);
  fill(values.view(), 0, stream);
  send(values.view(), 0, std::vector<std::uint8_t>{10, 11, 12, 13, 14, 15}, stream);
  send(values.view(), samples - 1, std::vector<std::uint8_t>{99}, stream);
  send(rest.view(), 0, std::vector<float>{1}, stream);  // the time of all, and what is wanted
  send(rest.view(), 1024, std::vector<std::int64_t>{0, 2, 3, samples}, stream);

  const Place place = rest.view().place;
  const std::array<std::int64_t, 1> shape = {samples}, strides = {0};
  std::byte* const begin = rest.view().data;
  resample({.sensors = {{.values = {values.view().data, DType::u8, {samples, 1}, place},
                         .times = {begin, DType::f32, shape, strides, place},
                         .offsets = {begin + 1024, DType::i64, {4}, place},
                         .mode = Interpolation::previous}},
            .at = {begin, DType::f32, {1}, place},
            .out = {begin + 2048, DType::u8, {3, 1, 1}, place}},
           stream);
  EXPECT_EQ(fetch<std::uint8_t>(rest.view(), 2048, 3, stream),
            (std::vector<std::uint8_t>{11, 12, 99}));
}

// So many blocks that the GPU does not hold them all at once.
TEST_F(ResampleGpu, ManyTargetsHaveTheBitsOfTheCpu) {
  const Stream stream(gpu), on_cpu(Device::cpu());
  for (const bool even : {true, false}) {
    for (const bool ragged : {true, false}) {
      const Shape shape{11, 700, 40'000, 8, DType::bf16, DType::f32, even, ragged};
      const ResampleCall fresh(shape, 3);
      ResampleCall here = fresh;
      resample(here.options([](Strided& array) { return array.view(); }, Interpolation::linear,
                            Outside::clamp),
               on_cpu);
      on_cpu.synchronize();
      for (const ResampleKernel kernel : kernels) {
        ResampleCall there = fresh;
        Copies copies(gpu, stream);
        const auto place = [&](Strided& array) { return copies.of(array); };
        ResampleOptions options = there.options(place, Interpolation::linear, Outside::clamp);
        options.kernel = kernel;
        resample(options, stream);
        copies.fetch();
        ASSERT_EQ(here.out().bytes(), there.out().bytes()) << static_cast<int>(kernel);
        ASSERT_EQ(here.valid().bytes(), there.valid().bytes()) << static_cast<int>(kernel);
      }
    }
  }
}

// Any bits at all: numbers without end, none, and the very small ones.
TEST_F(ResampleGpu, FloatsOfEveryKindHaveTheBitsOfTheCpu) {
  const Stream stream(gpu), on_cpu(Device::cpu());
  for (const std::int64_t columns : {64, 14, 5}) {
    const Shape shape{3, 300, 500, columns, DType::f32, DType::f32, false, false};
    const auto call = [&] {
      ResampleCall made(shape, 11);
      std::mt19937 random(5);
      for (std::int64_t i = 0; i < made.values().size(); ++i) {
        const auto bits = static_cast<std::uint32_t>(random());
        const auto special = random() % 8;
        const std::uint32_t exponent = special == 0 ? 0U : special == 1 ? 0x7f800000U : 0x7f000000U;
        made.values().set_bits(made.values().index(i),
                               special < 2 ? (bits & 0x807fffffU) | exponent : bits);
      }
      return made;
    };
    for (const auto outside : {Outside::clamp, Outside::extrapolate}) {
      ResampleCall here = call();
      resample(
          here.options([](Strided& array) { return array.view(); }, Interpolation::linear, outside),
          on_cpu);
      on_cpu.synchronize();
      for (const ResampleKernel kernel : kernels) {
        ResampleCall there = call();
        Copies copies(gpu, stream);
        const auto place = [&](Strided& array) { return copies.of(array); };
        ResampleOptions options = there.options(place, Interpolation::linear, outside);
        options.kernel = kernel;
        resample(options, stream);
        copies.fetch();
        for (std::int64_t i = 0; i < here.out().size(); ++i) {
          const auto at = here.out().index(i);
          const auto want = static_cast<std::uint32_t>(here.out().bits(at));
          const auto have = static_cast<std::uint32_t>(there.out().bits(at));
          if (std::isnan(std::bit_cast<float>(want)) && std::isnan(std::bit_cast<float>(have))) {
            continue;
          }
          ASSERT_EQ(want, have) << columns << " columns, element " << i << ", kernel "
                                << static_cast<int>(kernel);
        }
      }
    }
  }
}

TEST_F(ResampleGpu, CanBeCaptured) {
  const Stream stream(gpu), on_cpu(Device::cpu());
  const ResampleCall fresh(shapes[0], 7);
  ResampleCall here = fresh;
  resample(here.options([](Strided& array) { return array.view(); }, Interpolation::linear,
                        Outside::clamp),
           on_cpu);
  on_cpu.synchronize();
  for (const ResampleKernel kernel : kernels) {
    ResampleCall there = fresh;
    Copies copies(gpu, stream);
    ResampleOptions options = there.options([&](Strided& array) { return copies.of(array); },
                                            Interpolation::linear, Outside::clamp);
    options.kernel = kernel;
    stream.synchronize();
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t replay = nullptr;
    const cudaStream_t on = cuda_stream(stream);
    ASSERT_EQ(cudaStreamBeginCapture(on, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    resample(options, stream);
    ASSERT_EQ(cudaStreamEndCapture(on, &graph), cudaSuccess);
    ASSERT_EQ(cudaGraphInstantiate(&replay, graph, 0), cudaSuccess);
    ASSERT_EQ(cudaGraphLaunch(replay, on), cudaSuccess);
    copies.fetch();
    ASSERT_EQ(cudaGraphExecDestroy(replay), cudaSuccess);
    ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    EXPECT_EQ(here.out().bytes(), there.out().bytes());
  }
}

}  // namespace
}  // namespace ps::test
