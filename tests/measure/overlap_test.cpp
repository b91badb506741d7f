// Overlap on the CPU: what the figures are made of, and what is refused.
#include "penstock/measure/overlap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "penstock/base/error.h"

namespace ps {
namespace {

constexpr std::size_t item_bytes = 512 * KiB;

OverlapOptions small() {
  return {.device = Device::cpu(), .chunk = 128 * KiB, .rounds = 4, .repeats = 1};
}

class OverlapOnCpu : public testing::Test {
 protected:
  OverlapExperiment experiment{Device::cpu(), 2, item_bytes};
};

TEST_F(OverlapOnCpu, CountsEveryChunkOnceOnEveryEngine) {
  for (const Ways ways : {Ways::two, Ways::three, Ways::four}) {
    OverlapOptions options = small();
    options.ways = ways;
    options.chunk = 96 * KiB;  // six to an item, the last one shorter
    const auto r = experiment.run(options);
    EXPECT_EQ(r->chunks, 12u);
    for (const Timeline* timeline : {&r->sequential_timeline, &r->pipelined_timeline}) {
      const std::size_t each = timeline == &r->sequential_timeline ? 2 : 12;
      EXPECT_EQ(timeline->entries().size(), each * engines_of(ways).size()) << name(ways);
    }
    EXPECT_EQ(r->allocations, 0u) << name(ways);
  }
}

TEST_F(OverlapOnCpu, FiguresFollowFromTheTimes) {
  const auto r = experiment.run(small());
  const OverlapTimes& t = r->times;
  EXPECT_EQ(t.sequential, r->sequential.transfer() + r->sequential.compute);
  EXPECT_EQ(t.pipelined, r->pipelined.seconds);
  EXPECT_EQ(t.floor, r->engines.floor_seconds(engines_of(Ways::three)));
  EXPECT_GE(t.ideal, t.floor);
  EXPECT_EQ(r->figures.efficiency, t.floor / t.pipelined);
  EXPECT_EQ(r->verdict.over_floor, t.pipelined / t.floor);
  EXPECT_GT(r->predicted, 0);
}

TEST_F(OverlapOnCpu, ChoosesAChunkThatIsNotLargerThanAsked) {
  OverlapOptions options = small();
  options.chunk = 0;
  options.fewest_chunks = 8;
  const auto r = experiment.run(options);
  EXPECT_GE(r->chunks, 8u);
  EXPECT_LE(r->chunk, item_bytes);
  EXPECT_EQ(r->chunk % sizeof(float), 0u);
}

TEST_F(OverlapOnCpu, RunsTheSweepAndTheOtherWay) {
  OverlapOptions options = small();
  options.repeats = 3;
  options.sweep_chunks = {64 * KiB, item_bytes};
  options.sweep_depths = {1};
  int made = 0, runs = 0;
  options.beside = [&](const OverlapResult& so_far) {
    ++made;
    EXPECT_EQ(so_far.chunk, options.chunk);
    EXPECT_EQ(so_far.depth, options.depth);
    return [&runs] { ++runs; };
  };
  const auto r = experiment.run(options);
  EXPECT_EQ(made, 1);
  EXPECT_EQ(runs, 3);
  EXPECT_TRUE(r->beside_seconds.has_value());
  ASSERT_EQ(r->sweep.size(), 3u);
  for (const SweepPoint& point : r->sweep) EXPECT_GT(point.seconds, 0);
  EXPECT_GT(r->sweep[0].predicted, 0);
  EXPECT_EQ(r->sweep[2].depth, 1u);
  EXPECT_EQ(r->sweep[2].predicted, 0);  // the model says nothing about the depth
}

// Times that the clock shows from now on; every run still happens.
Timer clock_that_shows(std::map<std::string, double, std::less<>> seconds, int& pipelined_runs) {
  return [seconds = std::move(seconds), &pipelined_runs](std::string_view what,
                                                         const std::function<void()>& run) {
    run();
    if (what == "pipelined") ++pipelined_runs;
    return seconds.at(std::string(what));
  };
}

TEST_F(OverlapOnCpu, TheFloorIsTheBestPassOfAllRunsOfAnExperiment) {
  OverlapOptions options = small();
  options.ways = Ways::two;
  int runs = 0;
  // Far below what the engines really take, so that these passes are the best.
  options.timer = clock_that_shows(
      {{"upload alone", 4e-9}, {"compute alone", 3e-9}, {"pipelined", 6e-9}}, runs);
  const auto first = experiment.run(options);
  // All work divided by the cores is a floor, too.
  const auto floor = [&](double upload, double compute) {
    return std::max({upload, compute, (upload + compute) / first->engines.cores});
  };
  EXPECT_DOUBLE_EQ(first->times.floor, floor(4e-9, 3e-9));
  options.timer = clock_that_shows(
      {{"upload alone", 2e-9}, {"compute alone", 8e-9}, {"pipelined", 6e-9}}, runs);
  const auto second = experiment.run(options);
  EXPECT_DOUBLE_EQ(second->times.floor, floor(2e-9, 3e-9));  // compute was faster in the first run
  experiment.judge(*first);
  EXPECT_DOUBLE_EQ(first->times.floor, floor(2e-9, 3e-9));
  EXPECT_DOUBLE_EQ(first->verdict.over_floor, 6e-9 / first->times.floor);
}

TEST_F(OverlapOnCpu, FasterThanItsFloorIsMeasuredThreeTimesAndThenDropped) {
  OverlapOptions options = small();
  options.ways = Ways::two;
  int runs = 0;
  options.timer = clock_that_shows(
      {{"upload alone", 4e-9}, {"compute alone", 3e-9}, {"pipelined", 3.9e-9}}, runs);
  const auto r = experiment.run(options);
  EXPECT_EQ(r->tries, 3);
  EXPECT_EQ(runs, 3);
  EXPECT_FALSE(r->verdict.kept());
  EXPECT_NE(r->verdict.reason.find(" x its floor"), std::string::npos) << r->verdict.reason;
  EXPECT_EQ(r->pipelined.seconds, 3.9e-9);
}

TEST_F(OverlapOnCpu, RefusesNonsenseByName) {
  const auto refused = [&](auto change) {
    OverlapOptions options = small();
    change(options);
    try {
      experiment.run(options);
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const auto expect = [](const std::string& message, const char* argument) {
    EXPECT_NE(message.find(argument), std::string::npos) << message;
  };
  expect(refused([](auto& o) { o.depth = 0; }), "depth");
  expect(refused([](auto& o) { o.repeats = 0; }), "repeats");
  expect(refused([](auto& o) { o.tries = 0; }), "tries");
  expect(refused([](auto& o) { o.chunk = 2 * item_bytes; }), "chunk");
  expect(refused([](auto& o) { o.chunk = 3; }), "chunk");
  expect(refused([](auto& o) { o.rounds = -1; }), "rounds");
  expect(refused([](auto& o) {
           o.rounds = 0;
           o.compute_ratio = 0;
         }),
         "compute_ratio");
  expect(refused([](auto& o) { o.sweep_chunks = {0}; }), "sweep_chunks");
  expect(refused([](auto& o) { o.sweep_depths = {0}; }), "sweep_depths");
  expect(refused([](auto& o) { o.fewest_chunks = 0; }), "fewest_chunks");
}

TEST(Overlap, RefusesSizesThatAreNone) {
  EXPECT_THROW(OverlapExperiment(Device::cpu(), 0, item_bytes), InvalidArgument);
  EXPECT_THROW(OverlapExperiment(Device::cpu(), 1, 0), InvalidArgument);
  EXPECT_THROW(OverlapExperiment(Device::cpu(), 1, 3), InvalidArgument);
  EXPECT_THROW(OverlapExperiment(Device::cpu(), ~std::size_t{0}, 8), InvalidArgument);
  EXPECT_THROW(OverlapExperiment(Device::cpu(), std::size_t{1} << 40, std::size_t{1} << 20),
               OutOfMemory);
}

TEST_F(OverlapOnCpu, StopsWhenAskedTo) {
  std::stop_source source;
  OverlapOptions options = small();
  options.stop = source.get_token();
  options.progress = [&](std::string_view what, double) {
    if (what == "pipelined") source.request_stop();
  };
  EXPECT_THROW(experiment.run(options), Cancelled);
  options.stop = {};
  options.progress = nullptr;
  EXPECT_NO_THROW(experiment.run(options));  // and can go on afterwards
}

}  // namespace
}  // namespace ps
