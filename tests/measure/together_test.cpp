#include "measure/together.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <barrier>
#include <cstddef>
#include <stdexcept>

#include "support/watchdog.h"

namespace ps::detail {
namespace {

TEST(SecondsTogether, RunsEveryIndexOnce) {
  std::array<std::atomic<int>, 8> runs{};
  const double seconds =
      seconds_together(8, [&](int i) { ++runs.at(static_cast<std::size_t>(i)); });
  for (const auto& count : runs) EXPECT_EQ(count, 1);
  EXPECT_GT(seconds, 0);
}

TEST(SecondsTogether, RunsAllAtTheSameTime) {
  const test::Watchdog watchdog("all threads meet at a barrier");
  std::barrier meeting(5);
  seconds_together(5, [&](int) { meeting.arrive_and_wait(); });
}

TEST(SecondsTogether, ThrowsTheFirstErrorOnceAllHaveEnded) {
  std::atomic<int> ended = 0;
  const auto work = [&](int index) {
    ++ended;
    if (index == 2) throw std::runtime_error("two");
  };
  EXPECT_THROW(seconds_together(4, work), std::runtime_error);
  EXPECT_EQ(ended, 4);
}

}  // namespace
}  // namespace ps::detail
