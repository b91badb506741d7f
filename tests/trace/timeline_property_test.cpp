// What must hold for every set of intervals. A failure prints the seed;
// PENSTOCK_SEED=<seed> runs that one again.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <vector>

#include "penstock/trace/timeline.h"

namespace ps {
namespace {

using Spans = std::vector<Span>;

constexpr unsigned rounds = 300;

bool equal(const Spans& a, const Spans& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Span& x, const Span& y) {
    return x.begin_ns == y.begin_ns && x.end_ns == y.end_ns;
  });
}

std::int64_t between(std::mt19937_64& random, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(random);
}

// Few distinct times, so that spans often touch, nest and coincide; some are empty or reversed.
Spans random_spans(std::mt19937_64& random) {
  const std::int64_t range = between(random, 1, 200);
  Spans spans(static_cast<std::size_t>(between(random, 0, 40)));
  for (Span& span : spans) {
    span.begin_ns = between(random, -range, range);
    span.end_ns = span.begin_ns + between(random, -3, range / 4 + 1);
  }
  return spans;
}

// Slow and obvious: how many nanoseconds lie in at least one span.
std::int64_t count_covered(const Spans& spans) {
  std::int64_t covered = 0;
  for (std::int64_t t = -500; t < 500; ++t) {
    covered += std::any_of(spans.begin(), spans.end(),
                           [t](const Span& span) { return span.begin_ns <= t && t < span.end_ns; });
  }
  return covered;
}

template <class Property>
void for_random_spans(Property property) {
  const char* chosen = std::getenv("PENSTOCK_SEED");
  const std::uint64_t first =
      chosen != nullptr ? std::strtoull(chosen, nullptr, 10) : std::random_device{}();
  for (std::uint64_t seed = first; seed < first + (chosen != nullptr ? 1 : rounds); ++seed) {
    SCOPED_TRACE(testing::Message() << "PENSTOCK_SEED=" << seed);
    std::mt19937_64 random(seed);
    property(random_spans(random), random);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(UnionProperty, LengthIsTheNumberOfCoveredNanoseconds) {
  for_random_spans([](const Spans& spans, std::mt19937_64&) {
    EXPECT_EQ(length_ns(union_of(spans)), count_covered(spans));
  });
}

TEST(UnionProperty, IsSortedDisjointAndApart) {
  for_random_spans([](const Spans& spans, std::mt19937_64&) {
    const Spans cover = union_of(spans);
    for (std::size_t i = 0; i < cover.size(); ++i) {
      EXPECT_LT(cover[i].begin_ns, cover[i].end_ns);
      if (i > 0) {
        EXPECT_LT(cover[i - 1].end_ns, cover[i].begin_ns);
      }
    }
  });
}

TEST(UnionProperty, LengthIsBetweenTheLongestAndTheSum) {
  for_random_spans([](const Spans& spans, std::mt19937_64&) {
    std::int64_t sum = 0, longest = 0;
    for (const Span& span : spans) {
      const std::int64_t length = std::max<std::int64_t>(0, span.end_ns - span.begin_ns);
      sum += length;
      longest = std::max(longest, length);
    }
    EXPECT_LE(length_ns(union_of(spans)), sum);
    EXPECT_GE(length_ns(union_of(spans)), longest);
  });
}

TEST(UnionProperty, OrderDoesNotMatter) {
  for_random_spans([](const Spans& spans, std::mt19937_64& random) {
    Spans shuffled = spans;
    std::shuffle(shuffled.begin(), shuffled.end(), random);
    EXPECT_TRUE(equal(union_of(shuffled), union_of(spans)));
  });
}

TEST(UnionProperty, SplittingASpanDoesNotMatter) {
  for_random_spans([](const Spans& spans, std::mt19937_64& random) {
    Spans split;
    for (const Span& span : spans) {
      if (span.end_ns <= span.begin_ns) continue;
      const std::int64_t middle = between(random, span.begin_ns, span.end_ns);
      split.push_back({span.begin_ns, middle});
      split.push_back({middle, span.end_ns});
    }
    EXPECT_TRUE(equal(union_of(split), union_of(spans)));
  });
}

TEST(UnionProperty, MovesWithItsSpans) {
  for_random_spans([](const Spans& spans, std::mt19937_64& random) {
    const std::int64_t shift = between(random, -1'000'000, 1'000'000);
    const auto moved = [shift](Spans all) {
      for (Span& span : all) span = {span.begin_ns + shift, span.end_ns + shift};
      return all;
    };
    EXPECT_TRUE(equal(union_of(moved(spans)), moved(union_of(spans))));
  });
}

TEST(UnionProperty, OfAUnionIsItself) {
  for_random_spans([](const Spans& spans, std::mt19937_64&) {
    EXPECT_TRUE(equal(union_of(union_of(spans)), union_of(spans)));
  });
}

TEST(TimelineProperty, BusyAndGapsFillEachEnginesSpan) {
  for_random_spans([](const Spans& spans, std::mt19937_64& random) {
    Timeline timeline;
    for (const Span& span : spans) {
      const auto engine = static_cast<Engine>(between(random, 0, 2));
      timeline.record({engine, "stage", 0, span.begin_ns, span.end_ns});
    }
    for (const Engine engine : {Engine::disk, Engine::host, Engine::upload}) {
      const Spans busy = timeline.busy(engine);
      const std::int64_t span = busy.empty() ? 0 : busy.back().end_ns - busy.front().begin_ns;
      const Gaps gaps = timeline.gaps(engine);
      EXPECT_NEAR(timeline.busy_seconds(engine) + gaps.total_seconds,
                  static_cast<double>(span) * 1e-9, 1e-15);
      EXPECT_LE(gaps.largest_seconds, gaps.total_seconds);
      EXPECT_LE(timeline.busy_seconds(engine), timeline.span_seconds() + 1e-15);
    }
  });
}

}  // namespace
}  // namespace ps
