// Deprecated names still compile and mean the same as the new ones. Remove with them.
#include <gtest/gtest.h>

#include <type_traits>

#include "penstock/measure/by_turns.h"
#include "penstock/stream/transform.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace ps {
namespace {

static_assert(std::is_same_v<TurnsOptions, InterleavedOptions>);
static_assert(std::is_class_v<StreamedTransform>);  // stream/transform.h forwards

TEST(Deprecated, SecondsByTurns) {
  const Stream stream(Device::cpu());
  int calls = 0;
  const auto seconds =
      seconds_by_turns(stream, {[&](std::size_t) { ++calls; }}, {.turns = 2, .warm_up = 1});
  EXPECT_EQ(calls, 3);
  ASSERT_EQ(seconds.size(), 1U);
  EXPECT_EQ(seconds[0].size(), 2U);
}

}  // namespace
}  // namespace ps

#pragma GCC diagnostic pop
