// What resample refuses, and what it says.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/ops/resample.h"
#include "support/fake_machine.h"

namespace ps::test {
namespace {

struct Refusal {
  std::string argument, expected, given;
};

// Two sensors of 3 and 5 columns, in all a call that is right. Tests spoil it.
class ResampleErrors : public testing::Test {
 protected:
  static constexpr std::int64_t B = 2, S = 6, N = 9, T = 4;

  static TensorView view(void* data, DType type, std::initializer_list<std::int64_t> shape) {
    return {data, type, shape, Device::cpu().place()};
  }
  static TensorView strided(void* data, DType type, std::vector<std::int64_t> shape,
                            std::vector<std::int64_t> strides) {
    return {data, type, shape, strides, Device::cpu().place()};
  }

  ResampleErrors() {
    for (std::size_t i = 0; i < times.size(); ++i) times[i] = static_cast<double>(i % S);
    for (std::size_t i = 0; i < ragged_times.size(); ++i) ragged_times[i] = static_cast<double>(i);
    for (std::size_t i = 0; i < at.size(); ++i) at[i] = static_cast<double>(i % T);
    options.sensors = {{.values = view(values.data(), DType::f32, {B, S, 3}),
                        .times = view(times.data(), DType::f64, {B, S})},
                       {.values = view(ragged.data(), DType::f32, {N, 5}),
                        .times = view(ragged_times.data(), DType::f64, {N}),
                        .offsets = view(offsets.data(), DType::i32, {B + 1})}};
    options.at = view(at.data(), DType::f64, {B, T});
    options.out = view(out.data(), DType::f32, {B, T, 8});
    options.valid = view(valid.data(), DType::boolean, {B, T, 2});
  }

  static Refusal refused(const std::function<void(const Stream&)>& call,
                         const Device& device = Device::cpu()) {
    const Stream stream(device);
    try {
      call(stream);
      stream.synchronize();
    } catch (const InvalidArgument& error) {
      EXPECT_FALSE(error.expected().empty());
      EXPECT_FALSE(error.given().empty());
      return {error.argument(), error.expected(), error.given()};
    }
    return {};
  }
  Refusal refusal(const Device& device = Device::cpu()) const {
    return refused([&](const Stream& stream) { resample(options, stream); }, device);
  }
  std::string argument() const { return refusal().argument; }

  // The argument that is named when options are spoilt.
  std::string spoilt(const std::function<void(ResampleOptions&)>& spoil) const {
    ResampleOptions bad = options;
    spoil(bad);
    return refused([&](const Stream& stream) { resample(bad, stream); }).argument;
  }

  alignas(64) std::array<float, B * S * 3 + 16> values{};
  alignas(64) std::array<float, N * 5 + 16> ragged{};
  alignas(64) std::array<double, B * S> times{};
  alignas(64) std::array<double, N> ragged_times{};
  std::array<std::int32_t, B + 1> offsets{0, 4, 9};
  std::array<std::int64_t, B> lengths{6, 3};
  alignas(64) std::array<double, B * T> at{};
  alignas(64) std::array<float, B * T * 8 + 16> out{};
  std::array<bool, B * T * 2> valid{};
  ResampleOptions options;
};

TEST_F(ResampleErrors, NoneWhereAllIsWell) {
  EXPECT_EQ(argument(), "");
  options.check = true;
  options.sensors[0].lengths = view(lengths.data(), DType::i64, {B});
  EXPECT_EQ(argument(), "");
}

TEST_F(ResampleErrors, NoneOfSizesThatAreZero) {
  for (const auto& [b, s, t, d] : std::vector<std::array<std::int64_t, 4>>{
           {0, 3, 2, 2}, {2, 0, 2, 2}, {2, 3, 0, 2}, {2, 3, 2, 0}, {0, 0, 0, 0}}) {
    const TensorView mask = view(valid.data(), DType::boolean, {b, t});
    for (const bool check : {false, true}) {
      EXPECT_EQ(refused([&, b = b, s = s, t = t, d = d](const Stream& stream) {
                  resample({.sensors = {{.values = view(values.data(), DType::f32, {b, s, d}),
                                         .times = view(times.data(), DType::f64, {s})}},
                            .at = view(at.data(), DType::f64, {t}),
                            .out = view(out.data(), DType::f32, {b, t, d}),
                            .valid = mask,
                            .check = check},
                           stream);
                  resample_gradient({.gradient = view(values.data(), DType::f32, {b, t, d}),
                                     .times = view(times.data(), DType::f64, {s}),
                                     .at = view(at.data(), DType::f64, {t}),
                                     .out = view(out.data(), DType::f32, {b, s, d})},
                                    stream);
                }).argument,
                "");
    }
  }
}

TEST_F(ResampleErrors, NumbersOfSensorsAndRanges) {
  EXPECT_EQ(spoilt([](ResampleOptions& o) { o.sensors.clear(); }), "sensors");
  EXPECT_EQ(spoilt([](ResampleOptions& o) { o.sensors.resize(9, o.sensors[0]); }), "sensors");
  EXPECT_EQ(spoilt([](ResampleOptions& o) { o.sensors[1].columns.resize(33); }), "sensors");
  EXPECT_EQ(spoilt([](ResampleOptions& o) { o.sensors[1].columns.resize(32); }), "");
}

TEST_F(ResampleErrors, AsManySegmentsAsRangesAllow) {
  std::vector<float> wide(65, 1), row(65);
  Sensor sensor{.values = view(wide.data(), DType::f32, {1, 1, 65}),
                .times = view(times.data(), DType::f64, {1})};
  for (int i = 0; i < 32; ++i) {
    sensor.columns.push_back({2 * i + 1, 2 * i + 2, Interpolation::nearest});
  }
  options = {.sensors = {sensor},
             .at = view(at.data(), DType::f64, {1}),
             .out = view(row.data(), DType::f32, {1, 1, 65})};
  EXPECT_EQ(argument(), "");
  EXPECT_EQ(row, wide);
}

TEST_F(ResampleErrors, Shapes) {
  EXPECT_EQ(spoilt([&](auto& o) { o.sensors[0].values = view(values.data(), DType::f32, {S, 3}); }),
            "sensors[0].values");
  EXPECT_EQ(spoilt([](auto& o) { o.sensors[0].values = {}; }), "sensors[0].values");
  EXPECT_EQ(
      spoilt([&](auto& o) { o.sensors[1].values = view(ragged.data(), DType::f32, {1, N, 5}); }),
      "sensors[1].values");
  EXPECT_EQ(spoilt([&](auto& o) { o.sensors[0].times = view(times.data(), DType::f64, {B, 5}); }),
            "sensors[0].times");
  EXPECT_EQ(spoilt([&](auto& o) { o.sensors[0].times = view(times.data(), DType::f64, {5}); }),
            "sensors[0].times");
  EXPECT_EQ(spoilt([](auto& o) { o.sensors[0].times = {}; }), "sensors[0].times");
  EXPECT_EQ(spoilt([&](auto& o) { o.sensors[1].times = view(times.data(), DType::f64, {1, N}); }),
            "sensors[1].times");
  EXPECT_EQ(spoilt([&](auto& o) { o.sensors[0].lengths = view(lengths.data(), DType::i64, {1}); }),
            "sensors[0].lengths");
  EXPECT_EQ(spoilt([&](auto& o) { o.sensors[1].offsets = view(offsets.data(), DType::i32, {B}); }),
            "sensors[1].offsets");
  EXPECT_EQ(
      spoilt([&](auto& o) { o.sensors[1].offsets = view(offsets.data(), DType::i32, {1, 3}); }),
      "sensors[1].offsets");
  EXPECT_EQ(spoilt([&](auto& o) { o.sensors[1].offsets = view(offsets.data(), DType::i32, {0}); }),
            "sensors[1].offsets");
  EXPECT_EQ(spoilt([&](auto& o) { o.at = view(at.data(), DType::f64, {1, B, T}); }), "at");
  EXPECT_EQ(spoilt([&](auto& o) { o.at = view(at.data(), DType::f64, {1, T}); }), "at");
  EXPECT_EQ(spoilt([](auto& o) { o.at = {}; }), "at");
  EXPECT_EQ(spoilt([&](auto& o) { o.out = view(out.data(), DType::f32, {B, T, 7}); }), "out");
  EXPECT_EQ(spoilt([&](auto& o) { o.out = view(out.data(), DType::f32, {B, 3, 8}); }), "out");
  EXPECT_EQ(spoilt([&](auto& o) { o.out = view(out.data(), DType::f32, {B, T * 8}); }), "out");
  EXPECT_EQ(spoilt([&](auto& o) { o.valid = view(valid.data(), DType::boolean, {B, T}); }),
            "valid");
  EXPECT_EQ(spoilt([&](auto& o) { o.valid = view(valid.data(), DType::boolean, {B, T, 1}); }),
            "valid");
  const Refusal refusal = refused([&](const Stream& stream) {
    options.out = view(out.data(), DType::f32, {B, T, 7});
    resample(options, stream);
  });
  EXPECT_EQ(refusal.expected, "shape [2, 4, 8]: episodes, wanted times, columns");
  EXPECT_EQ(refusal.given, "f32[2, 4, 7] on cpu");
}

TEST_F(ResampleErrors, LengthsAndOffsetsTogether) {
  EXPECT_EQ(spoilt([&](auto& o) { o.sensors[1].lengths = view(lengths.data(), DType::i64, {B}); }),
            "sensors[1].lengths");
}

TEST_F(ResampleErrors, Types) {
  EXPECT_EQ(
      spoilt([&](auto& o) { o.sensors[0].values = view(values.data(), DType::i32, {B, S, 3}); }),
      "sensors[0].mode");
  EXPECT_EQ(spoilt([&](auto& o) { o.sensors[1].values = view(ragged.data(), DType::f16, {N, 5}); }),
            "sensors[1].values");
  EXPECT_EQ(spoilt([&](auto& o) { o.sensors[0].times = view(times.data(), DType::i32, {B, S}); }),
            "sensors[0].times");
  EXPECT_EQ(spoilt([&](auto& o) { o.sensors[1].times = view(times.data(), DType::f32, {N}); }),
            "sensors[1].times");
  EXPECT_EQ(spoilt([&](auto& o) { o.at = view(at.data(), DType::i64, {B, T}); }), "at");
  EXPECT_EQ(spoilt([&](auto& o) { o.out = view(out.data(), DType::i32, {B, T, 8}); }), "out");
  EXPECT_EQ(spoilt([&](auto& o) { o.valid = view(valid.data(), DType::u8, {B, T, 2}); }), "valid");
  EXPECT_EQ(spoilt([&](auto& o) { o.sensors[0].lengths = view(lengths.data(), DType::f64, {B}); }),
            "sensors[0].lengths");
  EXPECT_EQ(
      spoilt([&](auto& o) { o.sensors[1].offsets = view(offsets.data(), DType::f32, {B + 1}); }),
      "sensors[1].offsets");
}

TEST_F(ResampleErrors, Ranges) {
  const auto with = [&](std::vector<Columns> ranges) {
    return spoilt([&](auto& o) { o.sensors[1].columns = ranges; });
  };
  EXPECT_EQ(with({{1, 2}, {2, 6}}), "sensors[1].columns[1]");
  EXPECT_EQ(with({{1, 2}, {-1, 0}}), "sensors[1].columns[1]");
  EXPECT_EQ(with({{3, 2}}), "sensors[1].columns[0]");
  EXPECT_EQ(with({{3, 5}, {0, 2}, {1, 3}}), "sensors[1].columns[2]");
  EXPECT_EQ(with({{0, 3, Interpolation::slerp}}), "sensors[1].columns[0]");
  EXPECT_EQ(with({{1, 5, Interpolation::slerp}, {3, 3}}), "");
  EXPECT_EQ(spoilt([](auto& o) { o.sensors[0].mode = Interpolation::slerp; }), "sensors[0].mode");
  EXPECT_EQ(spoilt([](auto& o) {
              o.sensors[1].mode = Interpolation::slerp;
              o.sensors[1].columns = {{4, 5}};
            }),
            "");
  const auto integer = [&](std::vector<Columns> ranges, Interpolation mode) {
    return spoilt([&](auto& o) {
      o.sensors.resize(1);
      o.valid = {};
      o.sensors[0].values = view(values.data(), DType::i32, {B, S, 3});
      o.sensors[0].columns = ranges;
      o.sensors[0].mode = mode;
      o.out = view(out.data(), DType::i32, {B, T, 3});
    });
  };
  EXPECT_EQ(integer({{0, 1, Interpolation::linear}}, Interpolation::next), "sensors[0].columns[0]");
  EXPECT_EQ(integer({{0, 3, Interpolation::next}}, Interpolation::linear), "") << "has no columns";
}

TEST_F(ResampleErrors, UnknownValues) {
  EXPECT_EQ(spoilt([](auto& o) { o.sensors[0].mode = static_cast<Interpolation>(5); }),
            "sensors[0].mode");
  EXPECT_EQ(spoilt([](auto& o) { o.sensors[0].order = static_cast<Quaternion>(2); }),
            "sensors[0].order");
  EXPECT_EQ(spoilt([](auto& o) { o.sensors[0].columns = {{0, 1, static_cast<Interpolation>(9)}}; }),
            "sensors[0].columns[0].mode");
  EXPECT_EQ(spoilt([](auto& o) { o.outside = static_cast<Outside>(4); }), "outside");
  EXPECT_EQ(spoilt([](auto& o) { o.kernel = static_cast<ResampleKernel>(7); }), "kernel");
}

TEST_F(ResampleErrors, Places) {
  const TensorView elsewhere(times.data(), DType::f64, {B, S}, {Memory::device, 0});
  EXPECT_EQ(spoilt([&](auto& o) { o.sensors[0].times = elsewhere; }), "sensors[0].times");
  const auto odd = [](void* data) { return static_cast<std::byte*>(data) + 1; };
  EXPECT_EQ(spoilt([&](auto& o) {
              o.sensors[0].values = view(odd(values.data()), DType::f32, {B, S, 3});
            }),
            "sensors[0].values");
  EXPECT_EQ(spoilt([&](auto& o) { o.at = view(odd(at.data()), DType::f64, {B, T}); }), "at");
  EXPECT_EQ(spoilt([&](auto& o) { o.out = view(odd(out.data()), DType::f32, {B, T, 8}); }), "out");
  EXPECT_EQ(spoilt([&](auto& o) {
              o.sensors[1].offsets = view(odd(offsets.data()), DType::i32, {B + 1});
            }),
            "sensors[1].offsets");
}

TEST_F(ResampleErrors, Overlap) {
  EXPECT_EQ(spoilt([&](auto& o) {
              o.sensors[0].values =
                  strided(out.data() + B * T * 8 - 1, DType::f32, {B, S, 3}, {0, 0, 0});
            }),
            "out");
  EXPECT_EQ(spoilt([&](auto& o) {
              o.sensors[0].values =
                  strided(out.data() + B * T * 8, DType::f32, {B, S, 3}, {0, 0, 0});
            }),
            "")
      << "right behind it";
  EXPECT_EQ(spoilt([&](auto& o) { o.valid = view(out.data(), DType::boolean, {B, T, 2}); }),
            "valid");
  EXPECT_EQ(spoilt([&](auto& o) { o.out = strided(out.data(), DType::f32, {B, T, 8}, {0, 8, 1}); }),
            "out");
  EXPECT_EQ(
      spoilt([&](auto& o) { o.out = strided(out.data(), DType::f32, {B, T, 8}, {32, 7, 1}); }),
      "out");
  EXPECT_EQ(spoilt([&](auto& o) { o.out = strided(out.data(), DType::f32, {B, T, 8}, {1, 2, 8}); }),
            "out")
      << "columns apart";
  EXPECT_EQ(spoilt([&](auto& o) {
              o.valid = strided(valid.data(), DType::boolean, {B, T, 2}, {0, 0, 0});
            }),
            "valid");
}

TEST_F(ResampleErrors, Fill) {
  const auto with = [&](DType type, double fill, Outside outside = Outside::fill) {
    return spoilt([&](auto& o) {
      o.sensors.resize(1);
      o.valid = {};
      o.sensors[0] = {.values = view(values.data(), type, {1, 1, 1}),
                      .times = view(times.data(), DType::f64, {1}),
                      .mode = Interpolation::nearest};
      o.at = view(at.data(), DType::f64, {1});
      o.out = view(out.data(), type, {1, 1, 1});
      o.fill = fill;
      o.outside = outside;
    });
  };
  for (const DType type : {DType::u8, DType::boolean, DType::i32, DType::i64}) {
    EXPECT_EQ(with(type, NAN), "fill");
    EXPECT_EQ(with(type, 0.5), "fill");
    EXPECT_EQ(with(type, 1e30), "fill");
    EXPECT_EQ(with(type, 1e30, Outside::clamp), "fill") << "for what is missing";
    EXPECT_EQ(with(type, NAN, Outside::clamp), "");
    EXPECT_EQ(with(type, 1), "");
  }
  EXPECT_EQ(with(DType::u8, -1), "fill");
  EXPECT_EQ(with(DType::u8, 255), "");
  EXPECT_EQ(with(DType::boolean, 2), "fill");
  EXPECT_EQ(with(DType::i32, -2147483648.0), "");
  EXPECT_EQ(with(DType::i32, 2147483648.0), "fill");
  EXPECT_EQ(with(DType::i64, -0x1p63), "");
  EXPECT_EQ(with(DType::i64, 0x1p63), "fill");
  EXPECT_EQ(with(DType::f16, 1e30), "");
}

TEST_F(ResampleErrors, FoundByACheck) {
  options.check = true;
  times[S + 4] = 2.5;
  Refusal found = refusal();
  EXPECT_EQ(found.argument, "sensors[0].times");
  EXPECT_EQ(found.expected, "times that do not decrease");
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

TEST_F(ResampleErrors, TheFirstOneIsNamed) {
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

TEST_F(ResampleErrors, OfTimesOutside) {
  options.outside = Outside::error;
  ragged_times[4] = 0;
  EXPECT_EQ(argument(), "");
  at[T + 1] = NAN;
  EXPECT_EQ(argument(), "") << "NaN is neither before nor after";
  at[T + 2] = 5.5;
  const Refusal found = refusal();
  EXPECT_EQ(found.argument, "at");
  EXPECT_EQ(found.expected, "times within those of sensors[0], 0 to 5");
  EXPECT_EQ(found.given, "5.5 at (b, t) = (1, 2)");
  at[0] = -1;
  EXPECT_EQ(refusal().given, "-1 at (b, t) = (0, 0)");
}

// On a GPU, a fake one: what is refused before anything is launched.
TEST_F(ResampleErrors, OfAGpu) {
  FakeMachine machine;
  EXPECT_EQ(refusal(machine.gpu()).argument, "sensors[0].values");
}

TEST_F(ResampleErrors, OfAGpuThatIsTooOld) {
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

TEST_F(ResampleErrors, OfTheGradient) {
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
