// What resample finds in its arguments' contents when it is asked to, and what GPUs and the
// gradient refuse.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "support/fake_machine.h"
#include "support/resample_errors.h"

namespace ps::test {
namespace {

class ResampleChecks : public ResampleErrors {};

TEST_F(ResampleChecks, FoundByACheck) {
  options.check = true;
  times[S + 4] = 2.5;
  Refusal found = refusal();
  EXPECT_EQ(found.argument, "sensors[0].times");
  EXPECT_EQ(found.expected, "non-decreasing timestamps");
  EXPECT_EQ(found.given, "2.5 after 3 at (b, s) = (1, 4)");

  options.sensors[0].lengths = view(lengths.data(), DType::i64, {B});
  EXPECT_EQ(argument(), "") << "it lies behind the episode's end";
  lengths[1] = S + 1;
  found = refusal();
  EXPECT_EQ(found.argument, "sensors[0].lengths");
  EXPECT_EQ(found.expected, "lengths from 0 to 6");
  EXPECT_EQ(found.given, "7 at b = 1");
  lengths[1] = 3;

  ragged_times[6] = NAN;
  found = refusal();
  EXPECT_EQ(found.argument, "sensors[1].times");
  EXPECT_EQ(found.expected, "times that are numbers");
  EXPECT_EQ(found.given, "NaN at (b, s) = (1, 2)");
  ragged_times[6] = 6;
  ragged_times[4] = 1;
  EXPECT_EQ(argument(), "") << "another episode begins";

  offsets[1] = -1;
  found = refusal();
  EXPECT_EQ(found.argument, "sensors[1].offsets");
  EXPECT_EQ(found.given, "0 to -1 at b = 0");
  offsets[1] = 10;
  EXPECT_EQ(argument(), "sensors[1].offsets");
  options.check = false;
  EXPECT_EQ(argument(), "");
}

TEST_F(ResampleChecks, TheFirstOneIsNamed) {
  constexpr std::int64_t episodes = 3000;
  std::vector<double> clock(episodes * 20), wanted(1, 3), result(episodes);
  for (std::size_t i = 0; i < clock.size(); ++i) clock[i] = static_cast<double>(i % 20);
  for (const std::size_t b : {2999, 2000, 1234, 17}) {
    clock[b * 20 + 11] = NAN;
    const Refusal found = refused([&](const Stream& stream) {
      resample({.sensors = {{.values = view(clock.data(), DType::f64, {episodes, 20, 1}),
                             .times = view(clock.data(), DType::f64, {episodes, 20})}},
                .at = view(wanted.data(), DType::f64, {1}),
                .out = view(result.data(), DType::f64, {episodes, 1, 1}),
                .check = true},
               stream);
    });
    EXPECT_EQ(found.given, "NaN at (b, s) = (" + std::to_string(b) + ", 11)");
  }
}

TEST_F(ResampleChecks, OfTimesOutside) {
  options.outside = Outside::error;
  ragged_times[4] = 0;
  EXPECT_EQ(argument(), "");
  at[T + 1] = NAN;
  EXPECT_EQ(argument(), "") << "NaN is neither before nor after";
  at[T + 2] = 5.5;
  const Refusal found = refusal();
  EXPECT_EQ(found.argument, "at");
  EXPECT_EQ(found.expected, "target times within the timestamps of sensors[0], 0 to 5");
  EXPECT_EQ(found.given, "5.5 at (b, t) = (1, 2)");
  at[0] = -1;
  EXPECT_EQ(refusal().given, "-1 at (b, t) = (0, 0)");
}

// On a GPU, a fake one: what is refused before anything is launched.
TEST_F(ResampleChecks, OfAGpu) {
  FakeMachine machine;
  EXPECT_EQ(refusal(machine.gpu()).argument, "sensors[0].values");
}

TEST_F(ResampleChecks, OfAGpuThatIsTooOld) {
  FakeMachine machine({.adjust = [](int, cuda::Properties& gpu) {
    gpu.major = 7;
    gpu.minor = 5;
  }});
  const auto there = [&](const TensorView& here) {
    return TensorView(here.data(), here.dtype(), here.shape(), machine.gpu().place());
  };
  options.sensors.resize(1);
  options.sensors[0].values = there(options.sensors[0].values);
  options.sensors[0].times = there(options.sensors[0].times);
  options.at = there(options.at);
  options.out = there(view(out.data(), DType::f32, {B, T, 3}));
  options.valid = {};
  try {
    resample(options, Stream(machine.gpu()));
    FAIL();
  } catch (const Unsupported& error) {
    EXPECT_NE(std::string(error.what()).find("8.0 or later, found 7.5"), std::string::npos)
        << error.what();
  }
}

// Rows of nothing take no memory, however many there are.
TEST_F(ResampleChecks, OfMoreRowsThanAGpuCounts) {
  FakeMachine machine;
  const std::int64_t many = std::int64_t{1} << 30;
  const auto there = [&](DType type, std::vector<std::int64_t> shape) {
    return TensorView(values.data(), type, shape, machine.gpu().place());
  };
  const auto with = [&](std::int64_t episodes) {
    return refused(
        [&](const Stream& stream) {
          resample({.sensors = {{.values = there(DType::f32, {episodes, 3, 0}),
                                 .times = there(DType::f64, {3})}},
                    .at = there(DType::f64, {2}),
                    .out = there(DType::f32, {episodes, 2, 0})},
                   stream);
        },
        machine.gpu());
  };
  EXPECT_EQ(with(many - 1).argument, "");
  EXPECT_EQ(with(many).argument, "out");
  EXPECT_EQ(with(many).expected, "less than 2^31 rows on a GPU");
}

TEST_F(ResampleChecks, OfTheGradient) {
  const ResampleGradientOptions fine{.gradient = view(values.data(), DType::f32, {B, T, 3}),
                                     .times = view(times.data(), DType::f64, {B, S}),
                                     .at = view(at.data(), DType::f64, {B, T}),
                                     .out = view(out.data(), DType::f32, {B, S, 3})};
  const auto with = [&](const std::function<void(ResampleGradientOptions&)>& spoil) {
    ResampleGradientOptions bad = fine;
    spoil(bad);
    return refused([&](const Stream& stream) { resample_gradient(bad, stream); }).argument;
  };
  EXPECT_EQ(with([](auto&) {}), "");
  EXPECT_EQ(with([&](auto& o) { o.out = view(out.data(), DType::i32, {B, S, 3}); }), "out");
  EXPECT_EQ(with([&](auto& o) { o.out = view(out.data(), DType::f32, {S, 3}); }), "out");
  EXPECT_EQ(with([&](auto& o) { o.out = strided(out.data(), DType::f32, {B, S, 3}, {0, 3, 1}); }),
            "out");
  EXPECT_EQ(with([&](auto& o) { o.out = view(values.data(), DType::f32, {B, S, 3}); }), "out");
  EXPECT_EQ(with([&](auto& o) { o.gradient = view(values.data(), DType::f16, {B, T, 3}); }),
            "gradient");
  EXPECT_EQ(with([&](auto& o) { o.gradient = view(values.data(), DType::f32, {B, T, 2}); }),
            "gradient");
  EXPECT_EQ(
      with([&](auto& o) { o.gradient = strided(values.data(), DType::f32, {B, T, 3}, {0, 0, 0}); }),
      "gradient");
  EXPECT_EQ(with([](auto& o) { o.times = {}; }), "times");
  EXPECT_EQ(with([&](auto& o) { o.at = view(at.data(), DType::i64, {B, T}); }), "at");
  EXPECT_EQ(with([](auto& o) { o.outside = static_cast<Outside>(9); }), "outside");
  EXPECT_EQ(with([&](auto& o) {
              o.lengths = view(lengths.data(), DType::i64, {B});
              o.offsets = view(offsets.data(), DType::i32, {B + 1});
            }),
            "lengths");
  EXPECT_EQ(with([](auto& o) { o.outside = Outside::error; }), "");
  at[1] = 99;
  EXPECT_EQ(with([](auto& o) { o.outside = Outside::error; }), "at");
}

}  // namespace
}  // namespace ps::test
