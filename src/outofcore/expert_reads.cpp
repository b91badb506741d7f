#include "outofcore/expert_reads.h"

#include <algorithm>
#include <utility>

#include "host/flag.h"
#include "penstock/base/units.h"

namespace ps::detail {
namespace {

// Bytes that are read ahead: enough that a disk has work until the next request comes.
constexpr std::size_t bytes_ahead = 64 * MiB;

}  // namespace

ExpertReads::ExpertReads(const DiskExpertStore& store)
    : store_(store),
      window_(
          std::min(store.slots(), std::max<std::size_t>(4, bytes_ahead / store.block_bytes()))) {}

std::vector<ExpertReads::Pending>::iterator ExpertReads::pending(Key key) {
  return std::find_if(pending_.begin(), pending_.end(),
                      [&](const Pending& each) { return each.key == key; });
}

void ExpertReads::expect(std::span<const Key> keys, ReadPriority priority) {
  expected_.assign(keys.begin(), keys.end());
  priority_ = priority;
  std::erase_if(pending_, [&](const Pending& each) {
    return std::find(keys.begin(), keys.end(), each.key) == keys.end();
  });
  start_reads();
}

void ExpertReads::forget() noexcept {
  expected_.clear();
  pending_.clear();
}

// In order, so that a block that is needed earlier never waits for slots of later ones.
void ExpertReads::start_reads() {
  for (std::size_t i = 0; i < expected_.size() && i < window_; ++i) {
    const Key key = expected_[i];
    if (pending(key) != pending_.end()) continue;
    const std::int64_t experts = store_.shape().experts;
    auto block = store_.try_block(key / experts, key % experts, priority_);
    if (!block) return;
    const bool own = !block->hit() && priority_ != ReadPriority::background;
    pending_.push_back({key, std::move(*block), own});
  }
}

std::optional<MemoryView> ExpertReads::find(Key key) {
  if (std::find(expected_.begin(), expected_.end(), key) == expected_.end()) {
    expected_.push_front(key);
  }
  start_reads();
  const auto found = pending(key);
  if (found == pending_.end()) {
    // Its slot may be that of a later one.
    if (copying_.empty()) pending_.clear();
    return std::nullopt;
  }
  try {
    if (!found->block.ready()) return std::nullopt;
  } catch (...) {
    const bool again = !found->own && priority_ != ReadPriority::background;
    pending_.erase(found);
    if (!again) throw;
    start_reads();
    return std::nullopt;
  }
  return found->block.view();
}

void ExpertReads::copied_by(Key key, std::uint32_t copy) {
  const auto found = pending(key);
  copying_.push_back({copy, std::move(found->block)});
  pending_.erase(found);
  std::erase(expected_, key);
}

void ExpertReads::release_copied(std::uint32_t copy) noexcept {
  while (!copying_.empty() && is_reached(copy, copying_.front().copy)) copying_.pop_front();
}

}  // namespace ps::detail
