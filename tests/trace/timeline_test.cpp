#include "penstock/trace/timeline.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace ps {
namespace {

using Spans = std::vector<Span>;

void expect_spans(const Spans& actual, const Spans& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    EXPECT_EQ(actual[i].begin_ns, expected[i].begin_ns) << "span " << i;
    EXPECT_EQ(actual[i].end_ns, expected[i].end_ns) << "span " << i;
  }
}

TEST(UnionOf, OfNothingIsNothing) {
  expect_spans(union_of({}), {});
  EXPECT_EQ(length_ns({}), 0);
}

TEST(UnionOf, DropsEmptyAndReversedSpans) {
  expect_spans(union_of({{5, 5}, {9, 3}, {1, 2}}), {{1, 2}});
  expect_spans(union_of({{5, 5}, {9, 3}}), {});
}

TEST(UnionOf, KeepsDisjointSpansSorted) {
  expect_spans(union_of({{20, 30}, {0, 10}}), {{0, 10}, {20, 30}});
}

TEST(UnionOf, MergesOverlappingNestedEqualAndTouchingSpans) {
  expect_spans(union_of({{0, 10}, {5, 15}}), {{0, 15}});
  expect_spans(union_of({{0, 10}, {2, 3}, {9, 12}}), {{0, 12}});
  expect_spans(union_of({{0, 10}, {0, 10}}), {{0, 10}});
  expect_spans(union_of({{0, 10}, {10, 20}}), {{0, 20}});
}

TEST(UnionOf, KeepsTheNanosecondBetweenNeighbours) {
  expect_spans(union_of({{0, 10}, {11, 20}}), {{0, 10}, {11, 20}});
}

TEST(UnionOf, TakesTimesBeforeTheStart) {
  const Spans cover = union_of({{-10, -4}, {-5, 3}});
  expect_spans(cover, {{-10, 3}});
  EXPECT_EQ(length_ns(cover), 13);
}

// Upload busy 0-10 and 20-40 (in two overlapping pieces); compute busy 10-25; download nothing.
void record_example(Timeline& timeline) {
  timeline.record({Engine::upload, "up", 1, 20, 35});
  timeline.record({Engine::compute, "work", 0, 10, 25});
  timeline.record({Engine::upload, "up", 0, 0, 10});
  timeline.record({Engine::upload, "up", 2, 30, 40});
}

TEST(Timeline, AnswersZeroWhenNothingWasRecorded) {
  const Timeline timeline;
  EXPECT_TRUE(timeline.entries().empty());
  EXPECT_TRUE(timeline.complete());
  EXPECT_EQ(timeline.span_seconds(), 0);
  EXPECT_EQ(timeline.busy_seconds(Engine::upload), 0);
  EXPECT_EQ(timeline.gaps(Engine::upload).count, 0u);
  EXPECT_EQ(timeline.gaps(Engine::upload).total_seconds, 0);
}

TEST(Timeline, CountsNoNanosecondTwice) {
  Timeline timeline;
  record_example(timeline);
  EXPECT_DOUBLE_EQ(timeline.busy_seconds(Engine::upload), 30e-9);
  EXPECT_DOUBLE_EQ(timeline.busy_seconds(Engine::compute), 15e-9);
  EXPECT_EQ(timeline.busy_seconds(Engine::download), 0);
  EXPECT_DOUBLE_EQ(timeline.span_seconds(), 40e-9);
  expect_spans(timeline.busy(Engine::upload), {{0, 10}, {20, 40}});
}

TEST(Timeline, FindsTheGapsBetweenTheFirstAndTheLastWork) {
  Timeline timeline;
  record_example(timeline);
  timeline.record({Engine::upload, "up", 3, 45, 50});
  const Gaps gaps = timeline.gaps(Engine::upload);
  EXPECT_EQ(gaps.count, 2u);
  EXPECT_DOUBLE_EQ(gaps.total_seconds, 15e-9);
  EXPECT_DOUBLE_EQ(gaps.largest_seconds, 10e-9);
  EXPECT_EQ(timeline.gaps(Engine::compute).count, 0u);
}

TEST(Timeline, SortsEntriesByBeginAndKeepsTheirContent) {
  Timeline timeline;
  record_example(timeline);
  const std::vector<TimelineEntry> entries = timeline.entries();
  ASSERT_EQ(entries.size(), 4u);
  EXPECT_EQ(entries[0].begin_ns, 0);
  EXPECT_EQ(entries[1].stage, "work");
  EXPECT_EQ(entries[1].engine, Engine::compute);
  EXPECT_EQ(entries[2].item, 1u);
  EXPECT_EQ(entries[3].begin_ns, 30);
  EXPECT_EQ(entries[3].end_ns, 40);
}

TEST(Timeline, CopiesTheStageName) {
  Timeline timeline;
  std::string stage = "a stage whose name is too long for the small buffer";
  timeline.record({Engine::host, stage, 0, 0, 1});
  stage.assign(stage.size(), 'x');
  EXPECT_EQ(timeline.entries().at(0).stage, "a stage whose name is too long for the small buffer");
}

TEST(Timeline, ReversedAndEmptyIntervalsAreKeptButCountForNothing) {
  Timeline timeline;
  timeline.record({Engine::host, "h", 0, 100, 50});
  timeline.record({Engine::host, "h", 1, 70, 70});
  EXPECT_EQ(timeline.entries().size(), 2u);
  EXPECT_EQ(timeline.busy_seconds(Engine::host), 0);
  EXPECT_EQ(timeline.span_seconds(), 0);
}

TEST(Timeline, ForgetsOnClear) {
  Timeline timeline;
  record_example(timeline);
  timeline.clear();
  EXPECT_TRUE(timeline.entries().empty());
  EXPECT_EQ(timeline.span_seconds(), 0);
}

TEST(Timeline, TakesRecordsFromManyThreadsWhileBeingRead) {
  constexpr int threads = 4, each = 500;
  Timeline timeline;
  std::vector<std::jthread> writers;
  for (int t = 0; t < threads; ++t) {
    writers.emplace_back([&timeline, t] {
      for (int i = 0; i < each; ++i) {
        const std::int64_t begin = (t * each + i) * 10;
        timeline.record({Engine::host, "writer", static_cast<std::uint64_t>(i), begin, begin + 10});
      }
    });
  }
  while (timeline.entries().size() < threads * each) std::this_thread::yield();
  EXPECT_DOUBLE_EQ(timeline.busy_seconds(Engine::host), threads * each * 10e-9);
  EXPECT_EQ(timeline.gaps(Engine::host).count, 0u);
}

TEST(StartDelay, CountsFromWhenItemAndStageAreReady) {
  const std::vector<TimelineEntry> entries = {
      {Engine::upload, "up", 0, 0, 100},        {Engine::compute, "work", 0, 130, 300},
      {Engine::upload, "up", 1, 100, 200},      {Engine::compute, "work", 1, 310, 400},
      {Engine::upload, "up", 2, 200, 1000},     {Engine::compute, "work", 2, 1005, 1100},
      {Engine::compute, "work", 2, 1150, 1200}, {Engine::host, "else", 2, 0, 5000}};
  const StartDelay delay = start_delay(entries, "up", "work");
  EXPECT_EQ(delay.count, 3u);
  EXPECT_DOUBLE_EQ(delay.median_seconds, 10e-9);
  EXPECT_DOUBLE_EQ(delay.total_seconds, 45e-9);
}

TEST(StartDelay, OfNothingOrOfAnEarlyStartIsNone) {
  EXPECT_EQ(start_delay({}, "up", "work").count, 0u);
  const std::vector<TimelineEntry> early = {{Engine::upload, "up", 0, 0, 100},
                                            {Engine::compute, "work", 0, 50, 60}};
  EXPECT_DOUBLE_EQ(start_delay(early, "up", "work").total_seconds, 0);
}

}  // namespace
}  // namespace ps
