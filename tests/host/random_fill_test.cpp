#include "host/random_fill.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace ps {
namespace {

TEST(FillRandom, FillsEveryByteAndHoldsNoPattern) {
  std::vector<std::byte> bytes(100'003), others(bytes.size());
  detail::fill_random(bytes, 1);
  detail::fill_random(others, 2);
  std::array<int, 256> histogram{};
  for (const std::byte byte : bytes) ++histogram.at(static_cast<std::size_t>(byte));
  for (const int count : histogram) EXPECT_GT(count, 200);  // 390 on average
  EXPECT_NE(bytes, others);
  EXPECT_NO_THROW(detail::fill_random({}, 1));
}

}  // namespace
}  // namespace ps
