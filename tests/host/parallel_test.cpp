#include "penstock/host/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "penstock/base/error.h"

namespace {

TEST(Parallel, CoversEveryIndexOnce) {
  for (const std::size_t count : {0, 1, 2, 7, 8, 9, 100, 1023, 1024, 1025, 100'000}) {
    for (const std::size_t grain : {1, 3, 8, 1000, 1'000'000}) {
      std::vector<std::atomic<int>> visits(count);
      ps::parallel_ranges(count, grain, [&](std::size_t begin, std::size_t end) {
        EXPECT_LT(begin, end);
        EXPECT_EQ(begin % grain, 0U);
        for (std::size_t i = begin; i < end; ++i) ++visits[i];
      });
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(visits[i], 1) << i << " of " << count << ", grain " << grain;
      }
    }
  }
}

TEST(Parallel, ThrowsTheFirstFailureAfterAllHaveLeft) {
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> inside{0};
    const auto run = [&] {
      ps::parallel_ranges(1000, 1, [&](std::size_t begin, std::size_t) {
        ++inside;
        const bool fails = begin >= 300;
        --inside;
        if (fails) throw std::runtime_error("on purpose");
      });
    };
    EXPECT_THROW(run(), std::runtime_error);
    EXPECT_EQ(inside, 0);
  }
  std::atomic<std::size_t> sum{0};  // and it works again
  ps::parallel_ranges(100, 1, [&](std::size_t begin, std::size_t end) { sum += end - begin; });
  EXPECT_EQ(sum, 100U);
}

TEST(Parallel, ServesSeveralCallersAndCallsInsideCalls) {
  std::atomic<std::size_t> sum{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int round = 0; round < 20; ++round) {
        ps::parallel_ranges(64, 1, [&](std::size_t begin, std::size_t end) {
          for (std::size_t i = begin; i < end; ++i) {
            ps::parallel_ranges(8, 1, [&](std::size_t b, std::size_t e) { sum += e - b; });
          }
        });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum, 4U * 20 * 64 * 8);
}

TEST(Parallel, RefusesAGrainOfNothing) {
  EXPECT_THROW(ps::parallel_ranges(1, 0, [](std::size_t, std::size_t) {}), ps::InvalidArgument);
  EXPECT_GE(ps::parallel_threads(), 1U);
}

TEST(Parallel, PostedWorkIsDoneOnceByOtherThreads) {
  constexpr int posts = 500;
  std::atomic<int> done{0}, here{0};
  const std::thread::id me = std::this_thread::get_id();
  for (int i = 0; i < posts; ++i) {
    ps::parallel_post([&] {
      if (std::this_thread::get_id() == me) ++here;
      ++done;
      done.notify_all();
    });
  }
  for (int seen = done; seen < posts; seen = done) done.wait(seen);
  EXPECT_EQ(done, posts);
  EXPECT_EQ(here, 0);
}

// Loops and pieces share the threads: neither keeps the other from its end.
TEST(Parallel, PostedWorkMayRunLoops) {
  std::atomic<int> done{0};
  std::atomic<std::size_t> sum{0};
  for (int i = 0; i < 40; ++i) {
    ps::parallel_post([&] {
      ps::parallel_ranges(1000, 10,
                          [&](std::size_t begin, std::size_t end) { sum += end - begin; });
      ++done;
      done.notify_all();
    });
  }
  ps::parallel_ranges(100'000, 10, [&](std::size_t begin, std::size_t end) { sum += end - begin; });
  for (int seen = done; seen < 40; seen = done) done.wait(seen);
  EXPECT_EQ(sum, 140'000u);
}

}  // namespace
