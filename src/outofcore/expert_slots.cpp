#include "outofcore/expert_slots.h"

#include <fmt/format.h>

#include <utility>

#include "penstock/base/error.h"

namespace ps::detail {

ExpertSlots::ExpertSlots(std::size_t slots, std::size_t keys, std::unique_ptr<CachePolicy> policy)
    : slots_(slots), where_(keys, -1), policy_(std::move(policy)) {
  free_.reserve(slots);  // drop() must not fail
  for (std::size_t slot = slots; slot-- > 0;) free_.push_back(slot);
}

std::int64_t ExpertSlots::victim(bool scan, std::size_t scan_slots, const Evictable& evictable) {
  const auto may_go = [&](const Slot& slot) { return !slot.held && evictable(slot); };
  if (scan) {
    std::erase_if(scanned_, [&](const Scanned& each) {
      return slots_[each.slot].key != each.key || !slots_[each.slot].scanned;
    });
    if (scanned_.size() >= scan_slots && may_go(slots_[scanned_.front().slot])) {
      return static_cast<std::int64_t>(scanned_.front().slot);
    }
  }
  std::int64_t found = -1;
  policy_->victims([&](CacheKey key) {
    const std::int64_t slot = key < where_.size() ? find(static_cast<Key>(key)) : -1;
    if (slot < 0) {
      throw_invalid("policy", "victims that are in the cache", fmt::format("key {}", key));
    }
    if (!may_go(slots_[static_cast<std::size_t>(slot)])) return true;
    found = slot;
    return false;
  });
  return found;
}

std::int64_t ExpertSlots::take(Key key, bool scan, std::size_t scan_slots,
                               const Evictable& evictable) {
  std::int64_t slot = -1;
  if (!free_.empty()) {
    slot = static_cast<std::int64_t>(free_.back());
  } else {
    slot = victim(scan, scan_slots, evictable);
    if (slot < 0) return -1;
    const Slot& old = slots_[static_cast<std::size_t>(slot)];
    ++evicted_;
    wasted_ += old.unused ? 1 : 0;
    drop(static_cast<std::size_t>(slot));
    if (scan) scanned_.push_back({static_cast<std::size_t>(slot), key});
  }
  policy_->added(static_cast<CacheKey>(key));
  free_.pop_back();
  Slot& mine = slots_[static_cast<std::size_t>(slot)];
  mine.key = key;
  mine.ready = mine.held = mine.unused = false;
  mine.scanned = scan;
  where_[static_cast<std::size_t>(key)] = static_cast<std::int32_t>(slot);
  return slot;
}

void ExpertSlots::drop(std::size_t slot) {
  Slot& mine = slots_[slot];
  if (mine.key == none) return;
  policy_->removed(static_cast<CacheKey>(mine.key));
  where_[static_cast<std::size_t>(mine.key)] = -1;
  mine.key = none;
  mine.held = mine.unused = mine.scanned = false;
  free_.push_back(slot);  // the last one: take() gives it to the next key
}

}  // namespace ps::detail
