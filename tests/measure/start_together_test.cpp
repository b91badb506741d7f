#include "measure/start_together.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <barrier>
#include <cstddef>
#include <stdexcept>

#include "support/watchdog.h"

namespace ps::detail {
namespace {

TEST(RunThreadsTogether, RunsEveryIndexOnce) {
  std::array<std::atomic<int>, 8> runs{};
  const double seconds =
      run_threads_together(8, [&](int i) { ++runs.at(static_cast<std::size_t>(i)); });
  for (const auto& count : runs) EXPECT_EQ(count, 1);
  EXPECT_GT(seconds, 0);
}

TEST(RunThreadsTogether, RunsAllAtTheSameTime) {
  const test::Watchdog watchdog("all threads meet at a barrier");
  std::barrier meeting(5);
  run_threads_together(5, [&](int) { meeting.arrive_and_wait(); });
}

TEST(RunThreadsTogether, ThrowsTheFirstErrorOnceAllHaveEnded) {
  std::atomic<int> ended = 0;
  const auto work = [&](int index) {
    ++ended;
    if (index == 2) throw std::runtime_error("two");
  };
  EXPECT_THROW(run_threads_together(4, work), std::runtime_error);
  EXPECT_EQ(ended, 4);
}

}  // namespace
}  // namespace ps::detail
