// Arguments that resample refuses.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "support/resample_errors.h"

namespace ps::test {
namespace {

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
  EXPECT_EQ(refusal.expected, "shape (2, 4, 8): episodes, target times, columns");
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

}  // namespace
}  // namespace ps::test
