#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "gpu/resample_call.h"

namespace ps::test {
namespace {

// A gradient of episodes with lengths, nothing of it one behind the other in memory.
class GradientOfLengths {
 public:
  GradientOfLengths() {
    const auto number = [&] { return static_cast<double>(random_() % 10'000) / 10'000; };
    for (std::int64_t b = 0; b < 3; ++b) {
      lengths_.set_bits({b}, std::array{60U, 0U, 17U}.at(static_cast<std::size_t>(b)));
      double t = 0;
      for (std::int64_t i = 0; i < 60; ++i) {
        times_.set_bits({b, i}, bits_of_number(t += number() / 30, DType::f64));
      }
      for (std::int64_t i = 0; i < 90; ++i) {
        at_.set_bits({b, i}, bits_of_number(number() * 1.3 - 0.1, DType::f64));
      }
    }
    for (std::int64_t i = 0; i < gradient_.size(); ++i) {
      gradient_.set_bits(gradient_.index(i), bits_of_number(number(), DType::f32));
    }
  }

  template <class Place>
  ResampleGradientOptions options(const Place& place) {
    return {.gradient = place(gradient_),
            .times = place(times_),
            .lengths = place(lengths_),
            .at = place(at_),
            .out = place(out_)};
  }
  const std::vector<std::uint8_t>& out() { return out_.bytes(); }

 private:
  std::mt19937 random_{3};
  Strided gradient_{DType::f32, {3, 90, 7}, {.plain = false, .row = true}, random_};
  Strided times_{DType::f64, {3, 60}, {.plain = false}, random_};
  Strided at_{DType::f64, {3, 90}, {.plain = false}, random_};
  Strided lengths_{DType::i32, {3}, {.plain = false}, random_};
  Strided out_{DType::f32, {3, 60, 7}, {.plain = false, .row = true}, random_};
};

TEST_F(ResampleGpu, GradientsOfLengthsHaveTheBitsOfTheCpu) {
  const Stream stream(gpu), on_cpu(Device::cpu());
  GradientOfLengths here, there;
  resample_gradient(here.options([](Strided& array) { return array.view(); }), on_cpu);
  on_cpu.synchronize();
  Copies copies(gpu, stream);
  resample_gradient(there.options([&](Strided& array) { return copies.of(array); }), stream);
  copies.fetch();
  EXPECT_EQ(here.out(), there.out());
}

// Every row is written once, by an episode that claims it, and nothing beside them.
TEST_F(ResampleGpu, GradientsOfWrongOffsetsStayWithinTheirRows) {
  constexpr std::size_t rows = 8, before = 6, all = rows + 2 * before;
  constexpr std::uint32_t untouched = 0xA5A5A5A5;
  const Stream stream(gpu);
  const DeviceBuffer memory(gpu, 4096);
  send(memory.view(), 0, std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7}, stream);
  send(memory.view(), 1024, std::vector<std::int32_t>{0, 5, 3, 8, 20, -4}, stream);
  send(memory.view(), 1536, std::vector<float>{2}, stream);
  send(memory.view(), 2048, std::vector<float>(5, 1), stream);
  send(memory.view(), 3072, std::vector<std::uint32_t>(all, untouched), stream);
  const Place place = memory.view().place;
  std::byte* const begin = memory.view().data;
  resample_gradient({.gradient = {begin + 2048, DType::f32, {5, 1, 1}, place},
                     .times = {begin, DType::f32, {rows}, place},
                     .offsets = {begin + 1024, DType::i32, {6}, place},
                     .at = {begin + 1536, DType::f32, {1}, place},
                     .out = {begin + 3072 + before * sizeof(float), DType::f32, {rows, 1}, place}},
                    stream);
  const auto got = fetch<std::uint32_t>(memory.view(), 3072, all, stream);
  for (std::size_t i = 0; i < all; ++i) {
    if (i < before || i >= before + rows) {
      EXPECT_EQ(got[i], untouched) << i;
      continue;
    }
    // The third sample of the first episode has the wanted time, the first of the third is next to
    // it.
    const std::size_t row = i - before;
    const auto number = std::bit_cast<float>(got[i]);
    EXPECT_TRUE(number == 0 || (number == 1 && (row == 2 || row == 3))) << row << ": " << number;
  }
}

TEST_F(ResampleGpu, GradientsHaveTheBitsOfTheCpu) {
  const Stream stream(gpu), on_cpu(Device::cpu());
  std::uint32_t seed = 100;
  std::vector<Shape> all(std::begin(shapes), std::end(shapes));
  all.insert(all.end(), std::begin(short_shapes), std::end(short_shapes));
  for (const Shape& shape : all) {
    if (!is_floating(shape.type)) continue;
    for (const auto outside : {Outside::clamp, Outside::extrapolate}) {
      ++seed;
      ResampleCall here(shape, seed), there = here;
      // The gradient that comes in: some numbers.
      std::mt19937 random(seed);
      for (std::int64_t i = 0; i < here.out().size(); ++i) {
        const auto at = here.out().index(i);
        const auto bits =
            bits_of_number(static_cast<double>(random() % 2001) / 1000 - 1, shape.type);
        here.out().set_bits(at, bits);
        there.out().set_bits(at, bits);
      }
      resample_gradient(here.gradient([](Strided& array) { return array.view(); }, outside),
                        on_cpu);
      Copies copies(gpu, stream);
      resample_gradient(there.gradient([&](Strided& array) { return copies.of(array); }, outside),
                        stream);
      on_cpu.synchronize();
      copies.fetch();
      ASSERT_EQ(here.values().bytes(), there.values().bytes()) << "with seed " << seed;
    }
  }
}

}  // namespace
}  // namespace ps::test
