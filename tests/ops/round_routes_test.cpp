#include "penstock/ops/round_routes.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "penstock/base/error.h"
#include "support/rounding.h"
#include "support/sanitized.h"

namespace ps::test {
namespace {

void run(RoundingCall& call) {
  const Stream stream(Device::cpu());
  const Pool pool{Device::cpu()};
  RoundRoutesOptions options = call.options();
  options.pool = &pool;
  round_routes(options, stream);
  stream.synchronize();
}

TEST(RoundRoutes, KeepsItsPromises) {
  std::int64_t refused = 0;
  for (std::uint32_t seed = 1; seed <= random_cases(200); ++seed) {
    RoundingCall call(seed, rounding_shape(seed));
    run(call);
    ASSERT_EQ(call.wrong(), "") << "with seed " << seed;
    refused += call.refused();
  }
  EXPECT_GT(refused, 0) << "no call had experts that had to round down";
}

// With room for all, an expert rounds to the nearest multiple.
TEST(RoundRoutes, RoundsToTheNearestMultiple) {
  const RoundingShape shape{.tokens = 2000, .experts = 16, .choices = 4, .extra = 12, .tile = 64};
  RoundingCall call(3, shape);
  run(call);
  ASSERT_EQ(call.wrong(), "");
  EXPECT_EQ(call.refused(), 0);
}

// Only those beyond the best round down: the places of a token are all used.
TEST(RoundRoutes, TheBestTakeATokenThatManyWant) {
  Strided logits(DType::f32, {6, 4}), ids(DType::i32, {6, 1}), weights(DType::f32, {6, 1});
  Strided rounded_ids(DType::i32, {6, 3}), rounded_weights(DType::f32, {6, 3}),
      changes(DType::i32, {4});
  // Token 0 chose expert 0. Experts 1, 2 and 3 have one token each of a tile of two, and all of
  // them would take token 0; expert 2 has the smallest weight for it.
  const double all[6][4] = {{5, 4, 3, 4},    {1, -9, -9, -9}, {-9, 1, -9, -9},
                            {-9, -9, 1, -9}, {-9, -9, -9, 1}, {-9, -9, -9, -9}};
  for (std::int64_t t = 0; t < 6; ++t) {
    for (std::int64_t e = 0; e < 4; ++e) {
      logits.set_bits({t, e}, encoded(static_cast<float>(all[t][e]), DType::f32));
    }
    ids.set_bits({t, 0}, static_cast<std::uint32_t>(t == 0 ? 0 : t == 5 ? 4 : t - 1));
    weights.set_bits({t, 0}, encoded(t == 5 ? 0.F : 1.F, DType::f32));
  }
  const Stream stream(Device::cpu());
  const Pool pool{Device::cpu()};
  round_routes({.logits = logits.view(),
                .ids = ids.view(),
                .weights = weights.view(),
                .rounded_ids = rounded_ids.view(),
                .rounded_weights = rounded_weights.view(),
                .changes = changes.view(),
                .tile = 2,
                .pool = &pool},
               stream);
  stream.synchronize();
  const auto id = [&](std::int64_t t, std::int64_t p) {
    return static_cast<std::int32_t>(rounded_ids.bits({t, p}));
  };
  for (std::int64_t e = 0; e < 4; ++e) {
    EXPECT_EQ(static_cast<std::int32_t>(changes.bits({e})), e == 0 ? 0 : e == 2 ? -1 : 1) << e;
  }
  EXPECT_EQ(id(0, 0), 0);
  EXPECT_EQ(id(0, 1), 1);
  EXPECT_EQ(id(0, 2), 3);
  EXPECT_EQ(id(3, 0), 4) << "expert 2 dropped its only token";
}

TEST(RoundRoutes, WithoutExtraPlacesOnlyDrops) {
  RoundingCall call(4, {.tokens = 500, .extra = 0});
  run(call);
  ASSERT_EQ(call.wrong(), "");
  for (std::int64_t e = 0; e < 8; ++e) {
    EXPECT_LE(static_cast<std::int32_t>(call.changes().bits({e})), 0);
  }
}

TEST(RoundRoutes, ATileOfOneChangesNothing) {
  RoundingCall call(5, {.tokens = 100, .extra = 0, .tile = 1});
  run(call);
  ASSERT_EQ(call.wrong(), "");
  const RoundRoutesOptions options = call.options();
  for (std::int64_t i = 0; i < 200; ++i) {
    EXPECT_EQ(static_cast<const std::int32_t*>(options.rounded_ids.data())[i],
              static_cast<const std::int32_t*>(options.ids.data())[i]);
    EXPECT_EQ(static_cast<const float*>(options.rounded_weights.data())[i],
              static_cast<const float*>(options.weights.data())[i]);
  }
}

// The argument that an error names, for a call with one mistake.
std::string named(const std::function<void(RoundRoutesOptions&)>& spoil) {
  RoundingCall call(1, {});
  const Stream stream(Device::cpu());
  const Pool pool{Device::cpu()};
  RoundRoutesOptions options = call.options();
  options.pool = &pool;
  spoil(options);
  try {
    round_routes(options, stream);
    stream.synchronize();
  } catch (const InvalidArgument& error) {
    return error.argument();
  }
  return "";
}

TEST(RoundRoutes, ErrorsNameTheArgument) {
  using Options = RoundRoutesOptions;
  std::vector<float> floats(200 * 32);
  std::vector<std::int32_t> ints(200 * 32);
  EXPECT_EQ(named([](Options&) {}), "");
  EXPECT_EQ(named([](Options& o) { o.tile = 0; }), "tile");
  EXPECT_EQ(named([](Options& o) { o.scoring = static_cast<RoundScoring>(7); }), "scoring");
  EXPECT_EQ(named([](Options& o) { o.pool = nullptr; }), "workspace");
  EXPECT_EQ(named([&](Options& o) { o.logits = TensorView(floats.data(), DType::f32, {200}); }),
            "logits");
  EXPECT_EQ(named([&](Options& o) { o.logits = TensorView(floats.data(), DType::f32, {1, 513}); }),
            "logits");
  EXPECT_EQ(named([&](Options& o) { o.ids = TensorView(ints.data(), DType::i32, {200, 17}); }),
            "ids");
  EXPECT_EQ(named([&](Options& o) { o.ids = TensorView(floats.data(), DType::f32, {200, 2}); }),
            "ids");
  EXPECT_EQ(named([&](Options& o) { o.weights = TensorView(floats.data(), DType::f32, {200, 3}); }),
            "weights");
  EXPECT_EQ(
      named([&](Options& o) { o.rounded_ids = TensorView(ints.data(), DType::i32, {200, 1}); }),
      "rounded_ids");
  EXPECT_EQ(
      named([&](Options& o) { o.rounded_ids = TensorView(ints.data(), DType::i32, {200, 17}); }),
      "rounded_ids");
  EXPECT_EQ(named([&](Options& o) {
              o.rounded_weights = TensorView(floats.data(), DType::f32, {200, 5});
            }),
            "rounded_weights");
  EXPECT_EQ(named([](Options& o) { o.rounded_weights = o.weights; }), "rounded_weights");
  EXPECT_EQ(named([&](Options& o) { o.changes = TensorView(ints.data(), DType::i32, {7}); }),
            "changes");
  alignas(64) static std::byte small[64];
  EXPECT_EQ(named([](Options& o) { o.workspace = {small, sizeof small, {}}; }), "workspace");
}

}  // namespace
}  // namespace ps::test
