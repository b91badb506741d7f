#include "penstock/ops/route.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "penstock/host/event.h"
#include "support/route_random.h"
#include "support/sanitized.h"

namespace ps::test {
namespace {

void run(RandomRoute& call) {
  const Stream stream(Device::cpu());
  route(call.options(), stream);
  stream.synchronize();
}

TEST(Route, AgreesWithAPlainSort) {
  std::int64_t tokens = 0, close_calls = 0;
  for (std::uint32_t seed = 1; seed <= random_cases(1000); ++seed) {
    RandomRoute call(seed);
    run(call);
    ASSERT_EQ(call.wrong(), "") << "with seed " << seed;
    tokens += call.tokens();
    close_calls += call.close_calls();
  }
  EXPECT_LT(close_calls * 20, tokens) << "too few tokens were judged";
}

TEST(Route, AnyNumberOfExpertsAndChoices) {
  std::uint32_t seed = 0;
  for (const int experts : {1, 2, 3, 31, 32, 33, 64, 100, 128, 256, 257, 512}) {
    for (int choices = 1; choices <= std::min(16, experts); choices += sanitized ? 5 : 1) {
      for (const int scoring : {0, 1, 2}) {
        RandomRoute call(++seed, {.experts = experts, .choices = choices, .scoring = scoring});
        run(call);
        ASSERT_EQ(call.wrong(), "") << "with seed " << seed;
      }
    }
  }
}

TEST(Route, GroupsOfDeepSeekV3) {
  for (std::uint32_t seed = 1; seed <= random_cases(50); ++seed) {
    RandomRoute call(seed, {.tokens = 40,
                            .experts = 256,
                            .choices = 8,
                            .scoring = static_cast<int>(RouteScoring::sigmoid),
                            .groups = 8,
                            .top_groups = 4});
    run(call);
    ASSERT_EQ(call.wrong(), "") << "with seed " << seed;
  }
}

// The result of a token depends on nothing but the token.
TEST(Route, GivesTheSameBitsHoweverTokensAreDivided) {
  for (std::uint32_t seed = 1; seed <= 5; ++seed) {
    const RouteShape shape{.tokens = 1000};
    RandomRoute whole(seed, shape), single(seed, shape);
    run(whole);
    const RouteOptions options = single.options();
    const Stream stream(Device::cpu());
    for (std::int64_t token = 0; token < shape.tokens; ++token) {
      const auto row = [&](const TensorView& view) {
        const std::int64_t offset = token * view.strides()[0];
        const auto size = static_cast<std::int64_t>(size_of(view.dtype()));
        return TensorView(static_cast<std::byte*>(view.data()) + offset * size, view.dtype(),
                          {1, view.extent(1)});
      };
      RouteOptions one = options;
      one.logits = row(options.logits);
      one.ids = row(options.ids);
      one.weights = row(options.weights);
      route(one, stream);
    }
    stream.synchronize();
    EXPECT_EQ(whole.ids().bytes(), single.ids().bytes()) << "with seed " << seed;
    EXPECT_EQ(whole.weights().bytes(), single.weights().bytes()) << "with seed " << seed;
  }
}

struct Routed {
  int id;
  float weight;
  bool operator==(const Routed&) const = default;
};
void PrintTo(const Routed& choice, std::ostream* out) {
  *out << choice.id << " with " << choice.weight;
}

// The choices of one token.
std::vector<Routed> routed(std::vector<float> logits, int choices, RouteOptions options = {},
                           std::vector<float> bias = {}) {
  const auto count = static_cast<std::int64_t>(logits.size());
  std::vector<std::int32_t> ids(static_cast<std::size_t>(choices), -1);
  std::vector<float> weights(ids.size(), NAN);
  options.logits = TensorView(logits.data(), DType::f32, {1, count});
  options.ids = TensorView(ids.data(), DType::i32, {1, choices});
  options.weights = TensorView(weights.data(), DType::f32, {1, choices});
  if (!bias.empty()) options.bias = TensorView(bias.data(), DType::f32, {count});
  const Stream stream(Device::cpu());
  route(options, stream);
  stream.synchronize();
  std::vector<Routed> all;
  for (std::size_t k = 0; k < ids.size(); ++k) all.push_back({ids[k], weights[k]});
  return all;
}

using RoutedList = std::vector<Routed>;
constexpr RouteOptions topk{.scoring = RouteScoring::topk_softmax};
constexpr RouteOptions sigmoid{.scoring = RouteScoring::sigmoid};

TEST(Route, EqualScoresGoToTheLowerIndex) {
  for (const RouteOptions& options : {RouteOptions{}, topk, sigmoid}) {
    const std::vector<Routed> found = routed(std::vector<float>(128, 0.25F), 5, options);
    for (int k = 0; k < 5; ++k) EXPECT_EQ(found[static_cast<std::size_t>(k)].id, k);
    const std::vector<Routed> zeros = routed({-1, 0.0F, -0.0F, 0.0F}, 3, options);
    EXPECT_EQ(zeros[0].id, 1);
    EXPECT_EQ(zeros[1].id, 2);
    EXPECT_EQ(zeros[2].id, 3);
  }
}

TEST(Route, NothingToChooseFrom) {
  RouteOptions options;
  options.renormalise = true;
  options.scale = -1;
  for (const RouteScoring scoring :
       {RouteScoring::softmax_topk, RouteScoring::topk_softmax, RouteScoring::sigmoid}) {
    options.scoring = scoring;
    const RoutedList found = routed({NAN, -INFINITY, NAN}, 2, options);
    EXPECT_EQ(found, (RoutedList{{3, 0}, {3, 0}}));
    for (const Routed& each : found) EXPECT_FALSE(std::signbit(each.weight));
    EXPECT_EQ(routed({NAN, -5, -INFINITY}, 3, options)[0].id, 1);
    EXPECT_EQ(routed({NAN, -5, -INFINITY}, 3, options)[1], (Routed{3, 0}));
    EXPECT_EQ(routed({NAN, -5, -INFINITY}, 3, options)[0].weight, -1);
  }
}

TEST(Route, InfinityIsTheLargestNumber) {
  EXPECT_EQ(routed({0, INFINITY, 5, INFINITY}, 3), (RoutedList{{1, 0.5F}, {3, 0.5F}, {2, 0}}));
  EXPECT_EQ(routed({0, INFINITY, 5, INFINITY}, 3, topk),
            (RoutedList{{1, 0.5F}, {3, 0.5F}, {2, 0}}));
  EXPECT_EQ(routed({0, INFINITY}, 2, sigmoid), (RoutedList{{1, 1}, {0, 0.5F}}));
  const float largest = std::numeric_limits<float>::max();
  EXPECT_EQ(routed({-largest, largest}, 2), (RoutedList{{1, 1}, {0, 0}}));
}

TEST(Route, SumOfWeightsThatIsZero) {
  RouteOptions options = sigmoid;
  options.renormalise = true;
  EXPECT_EQ(routed({-1000, -2000, -3000}, 2, options), (RoutedList{{0, 0}, {1, 0}}));
}

TEST(Route, BiasChangesTheChoiceAndNotTheWeight) {
  EXPECT_EQ(routed({0, 0, 0}, 2, sigmoid, {-1, -3, -2}), (RoutedList{{0, 0.5F}, {2, 0.5F}}));
  EXPECT_EQ(routed({0, 9, 9, 0}, 3, sigmoid, {-4, NAN, -INFINITY, INFINITY}),
            (RoutedList{{3, 0.5F}, {0, 0.5F}, {4, 0}}));
}

TEST(Route, Groups) {
  RouteOptions options = sigmoid;
  options.groups = 3;
  const float low = -20;
  // Scores of 0.5 twice beat one of 0.95 and one of 0.
  EXPECT_EQ(routed({3, low, 0, 0, low, low}, 1, options)[0].id, 2);
  // Of groups with equal sums the first one wins.
  EXPECT_EQ(routed({low, low, 0, 0, 0, 0}, 2, options), (RoutedList{{2, 0.5F}, {3, 0.5F}}));
  // With negative scores, one candidate alone can beat two, and no candidate is not a score of 0.
  EXPECT_EQ(routed({0, 0, NAN, 0, NAN, NAN}, 2, options, {-2, -2, -2, -2, -2, -2}),
            (RoutedList{{3, 0.5F}, {6, 0}}));
  options.top_groups = 3;
  EXPECT_EQ(routed({0, NAN, NAN, NAN, NAN, 0}, 3, options, {-2, -2, -2, -2, -2, -1}),
            (RoutedList{{5, 0.5F}, {0, 0.5F}, {6, 0}}));
}

TEST(Route, KnownWeights) {
  const float e1 = std::exp(-1.0F);
  const auto near = [](const RoutedList& found, std::vector<Routed> wanted) {
    ASSERT_EQ(found.size(), wanted.size());
    for (std::size_t k = 0; k < found.size(); ++k) {
      EXPECT_EQ(found[k].id, wanted[k].id);
      EXPECT_FLOAT_EQ(found[k].weight, wanted[k].weight);
    }
  };
  near(routed({1, 4, 3, -INFINITY}, 2, topk), {{1, 1 / (1 + e1)}, {2, e1 / (1 + e1)}});
  const float all = 1 + e1 + e1 * e1 * e1;
  near(routed({1, 4, 3, NAN}, 2), {{1, 1 / all}, {2, e1 / all}});
  RouteOptions options{.renormalise = true, .scale = 2.5F};
  near(routed({1, 4, 3, NAN}, 2, options), {{1, 2.5F / (1 + e1)}, {2, 2.5F * e1 / (1 + e1)}});
}

TEST(Route, NoTokens) {
  const Stream stream(Device::cpu());
  route({.logits = TensorView(nullptr, DType::bf16, {0, 8}),
         .ids = TensorView(nullptr, DType::i64, {0, 2}),
         .weights = TensorView(nullptr, DType::f32, {0, 2})},
        stream);
  stream.synchronize();
}

TEST(Route, RunsInStreamOrder) {
  const Stream first(Device::cpu()), second(Device::cpu());
  const Event written(Device::cpu());
  std::vector<float> logits(8), weights(1);
  std::vector<std::int64_t> ids(1);
  first.call([&] { logits[5] = 1; });
  first.record(written);
  second.wait(written);
  route({.logits = TensorView(logits.data(), DType::f32, {1, 8}),
         .ids = TensorView(ids.data(), DType::i64, {1, 1}),
         .weights = TensorView(weights.data(), DType::f32, {1, 1})},
        second);
  second.synchronize();
  EXPECT_EQ(ids[0], 5);
}

}  // namespace
}  // namespace ps::test
