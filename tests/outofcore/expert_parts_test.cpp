// The parts of StreamedExperts that need no device: groups, slots, the order of layers.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "host/first_error.h"
#include "outofcore/expert_groups.h"
#include "outofcore/expert_host.h"
#include "outofcore/expert_order.h"
#include "outofcore/expert_slots.h"
#include "penstock/base/error.h"
#include "support/expert_arrays.h"

namespace ps::test {
namespace {

using detail::expert_group_size;
using detail::expert_groups;
using detail::ExpertOrder;
using detail::ExpertSlots;
using detail::least_expert_slots;
using detail::most_expert_groups;

// The sizes of the groups behind the first, if `experts` must be copied.
std::vector<std::size_t> sizes(std::size_t experts, std::size_t groups, std::size_t slots) {
  std::vector<std::size_t> found;
  for (std::size_t group = 1; group < groups; ++group) {
    found.push_back(expert_group_size(experts, groups - group, slots));
    experts -= found.back();
  }
  EXPECT_EQ(experts, 0U);
  return found;
}

TEST(ExpertGroups, FitIntoHalfOfTheSlots) {
  for (std::size_t experts = 1; experts <= 1024; experts += experts < 40 ? 1 : 61) {
    const std::size_t least = least_expert_slots(experts);
    for (const std::size_t slots : {least, least + 1, 2 * least, 4 * experts}) {
      for (std::size_t needed = 1; needed <= experts; needed += 1 + needed / 3) {
        for (const std::size_t misses : {std::size_t{0}, std::size_t{2}, experts}) {
          const std::size_t groups = expert_groups(needed, slots, misses);
          ASSERT_LE(groups, most_expert_groups);
          for (std::size_t missing = 0; missing <= needed; ++missing) {
            for (const std::size_t size : sizes(missing, groups, slots)) {
              ASSERT_LE(size, slots / 2) << needed << " of " << experts << " in " << slots;
            }
          }
        }
      }
    }
  }
}

TEST(ExpertGroups, EndWithASmallOne) {
  EXPECT_EQ(sizes(8, expert_groups(8, 128, 8), 128), (std::vector<std::size_t>{4, 3, 1}));
  EXPECT_EQ(sizes(1, 4, 128), (std::vector<std::size_t>{1, 0, 0}));
  const auto prompt = sizes(128, expert_groups(128, 128, 128), 128);
  EXPECT_EQ(prompt.size(), 7U);
  EXPECT_LE(prompt.back(), 4U);
  EXPECT_GE(prompt.back(), 1U);
}

TEST(ExpertGroups, AreFewIfNothingWillBeCopied) {
  EXPECT_EQ(expert_groups(8, 128, 0), 2U);
  EXPECT_EQ(expert_groups(128, 256, 0), 2U);
  EXPECT_EQ(expert_groups(1, 2, 128), 2U);
  EXPECT_EQ(least_expert_slots(128), 10U);
  EXPECT_EQ(least_expert_slots(8), 2U);
}

bool any(const ExpertSlots::Slot&) { return true; }

std::size_t put(ExpertSlots& slots, std::int64_t key, bool scan = false) {
  const std::int64_t slot = slots.take(key, scan, 2, any);
  EXPECT_GE(slot, 0);
  EXPECT_EQ(slots.find(key), slot);
  return static_cast<std::size_t>(slot);
}

TEST(ExpertSlotsTest, GiveEveryKeyItsOwnSlot) {
  ExpertSlots slots(4, 100, lru_policy());
  std::set<std::size_t> given;
  for (std::int64_t key = 0; key < 4; ++key) given.insert(put(slots, key));
  EXPECT_EQ(given.size(), 4U);
  slots.used(0);
  const auto first = static_cast<std::size_t>(slots.find(1));
  EXPECT_EQ(put(slots, 50), first) << "the last use of key 1 is longest ago";
  EXPECT_EQ(slots.find(1), -1);
  EXPECT_EQ(slots.evicted(), 1U);
}

TEST(ExpertSlotsTest, KeepWhatIsHeldAndWhatMayNotGo) {
  ExpertSlots slots(2, 100, lru_policy());
  slots[put(slots, 1)].held = true;
  const std::size_t second = put(slots, 2);
  EXPECT_EQ(put(slots, 3), second);
  EXPECT_EQ(slots.take(4, false, 2, [](const auto& slot) { return slot.key != 3; }), -1);
  EXPECT_EQ(slots.find(4), -1);
  EXPECT_GE(slots.find(3), 0);
  slots.drop(second);
  EXPECT_EQ(slots.find(3), -1);
  EXPECT_EQ(put(slots, 4), second);
}

TEST(ExpertSlotsTest, CountWhatWasPrefetchedForNothing) {
  ExpertSlots slots(1, 100, lru_policy());
  slots[put(slots, 1)].unused = true;
  put(slots, 2);
  put(slots, 3);
  EXPECT_EQ(slots.wasted(), 1U);
  EXPECT_EQ(slots.evicted(), 2U);
}

TEST(ExpertSlotsTest, PassesThroughAllKeysLeaveOthersAlone) {
  ExpertSlots slots(10, 100, lru_policy());
  for (int pass = 0; pass < 5; ++pass) {
    std::size_t hits = 0;
    for (std::int64_t key = 0; key < 40; ++key) {
      if (slots.find(key) >= 0) {
        ++hits;
      } else {
        put(slots, key, true);
      }
    }
    EXPECT_GE(hits, pass == 0 ? 0U : 7U) << "pass " << pass << ": two slots are enough for it";
  }
}

TEST(ExpertSlotsTest, AgreeWithAModel) {
  std::mt19937 random(7);
  ExpertSlots slots(12, 64, frequency_policy());
  std::set<std::int64_t> there;
  for (int i = 0; i < 20000; ++i) {
    const auto key = static_cast<std::int64_t>(random() % 64);
    ASSERT_EQ(slots.find(key) >= 0, there.contains(key));
    if (there.contains(key)) {
      if (random() % 5 == 0) {
        slots.drop(static_cast<std::size_t>(slots.find(key)));
        there.erase(key);
      } else {
        slots.used(key);
      }
      continue;
    }
    const std::size_t slot = put(slots, key, random() % 3 == 0);
    there.insert(key);
    for (auto old = there.begin(); old != there.end();) {
      old = slots.find(*old) < 0 ? there.erase(old) : std::next(old);
    }
    ASSERT_EQ(slots[slot].key, key);
    ASSERT_LE(there.size(), 12U);
  }
}

TEST(ExpertOrderTest, StartsWithTheLayersInOrder) {
  const ExpertOrder order(3);
  EXPECT_EQ(order.after(0, true), 1);
  EXPECT_EQ(order.after(1, false), 2);
  EXPECT_EQ(order.after(2, true), ExpertOrder::none);
  EXPECT_EQ(order.after(ExpertOrder::none, true), ExpertOrder::none);
}

TEST(ExpertOrderTest, LearnsWhatFollows) {
  ExpertOrder order(3);
  for (int pass = 0; pass < 2; ++pass) {
    for (const int layer : {0, 2, 1}) order.called(layer, true);
  }
  EXPECT_EQ(order.after(0, true), 2);
  EXPECT_EQ(order.after(2, true), 1);
  EXPECT_EQ(order.after(1, true), 0) << "passes follow each other";
  order.called(0, false);
  EXPECT_EQ(order.after(1, true), ExpertOrder::none) << "the last pass was followed by tokens";
  EXPECT_EQ(order.after(0, false), 1);
}

// A call that ends early tells the stream to take no rows: in a workspace that has room for them.
TEST(ExpertHost, ACallThatDoesNotFitIsNotKept) {
  const ExpertShape shape{.layers = 1, .experts = 4, .hidden = 16, .width = 8};
  const ExpertStore store(Device::cpu(), shape);
  std::mt19937 random(1);
  detail::FirstError error;
  const std::atomic<bool> cancelled{false};
  detail::ExpertHost host({.store = &store, .device = Device::cpu(), .host_threads = 1}, {}, 1,
                          error, cancelled);
  detail::ExpertHostPart& part = host.all().front();
  const Arrays small(store, 0, 8, 2, 0, random), large(store, 0, 4000, 4, 0, random);
  EXPECT_THROW(host.prepare(part, 0, large.call()), Exhausted);
  EXPECT_EQ(part.work.memory, nullptr);
  host.prepare(part, 0, small.call());
  EXPECT_EQ(part.work.rows(), 16);
  EXPECT_THROW(host.prepare(part, 0, large.call()), Exhausted);
  EXPECT_EQ(part.work.rows(), 16);
  detail::ExpertHost::release(part);
  const std::int32_t* rows = part.work.space.pair_rows(part.work.memory);
  EXPECT_EQ(std::count(rows, rows + 16, -1), 16);
}

}  // namespace
}  // namespace ps::test
