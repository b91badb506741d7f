#include "host/free_ranges.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace ps::detail {

std::optional<std::size_t> FreeRanges::take(std::size_t bytes) {
  auto best = ranges_.end();
  for (auto range = ranges_.begin(); range != ranges_.end(); ++range) {
    if (range->second < bytes) continue;
    if (best == ranges_.end() || range->second < best->second) best = range;
  }
  if (best == ranges_.end()) return std::nullopt;
  const std::size_t offset = best->first;
  take_at({offset, bytes});
  return offset;
}

void FreeRanges::take_at(ByteRange range) {
  const auto holder = std::prev(ranges_.upper_bound(range.offset));
  const ByteRange whole{holder->first, holder->second};
  const auto taken = taken_.emplace(range.offset, range.bytes).first;
  try {
    if (range.end() < whole.end()) ranges_.emplace(range.end(), whole.end() - range.end());
  } catch (...) {
    taken_.erase(taken);
    throw;
  }
  if (whole.offset < range.offset) {
    holder->second = range.offset - whole.offset;
  } else {
    ranges_.erase(holder);
  }
}

// Adds the neighbours of a range that is to be free to it. Returns whether `ranges` has the result;
// if not, it must be inserted.
bool FreeRanges::merge(Ranges& ranges, ByteRange& range) noexcept {
  const auto after = ranges.lower_bound(range.offset);
  const auto before = after == ranges.begin() ? ranges.end() : std::prev(after);
  if (after != ranges.end() && after->first == range.end()) {
    range.bytes += after->second;
    ranges.erase(after);
  }
  if (before == ranges.end() || before->first + before->second != range.offset) return false;
  before->second += range.bytes;
  range = {before->first, before->second};
  return true;
}

ByteRange FreeRanges::give(ByteRange range) noexcept {
  auto node = taken_.extract(range.offset);
  if (merge(ranges_, range)) return range;
  node.mapped() = range.bytes;
  ranges_.insert(std::move(node));
  return range;
}

ByteRange FreeRanges::Trial::give(ByteRange range) {
  if (!merge(ranges_, range)) ranges_.emplace(range.offset, range.bytes);
  return range;
}

std::size_t FreeRanges::largest() const {
  std::size_t most = 0;
  for (const auto& [offset, bytes] : ranges_) most = std::max(most, bytes);
  return most;
}

}  // namespace ps::detail
