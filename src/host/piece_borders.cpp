#include "host/piece_borders.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <shared_mutex>

namespace ps::detail {
namespace {

struct Pieces {
  std::size_t bytes = 0, piece = 0;
};

// Never destroyed: copies may be enqueued while the process ends.
struct Registry {
  std::atomic<std::size_t> count{0};  // copies of programs without arenas take no lock
  std::shared_mutex mutex;
  std::map<const std::byte*, Pieces> arenas;
};

Registry& registry() {
  static Registry& made = *new Registry;
  return made;
}

}  // namespace

PieceBorders::PieceBorders(const std::byte* begin, std::size_t bytes, std::size_t piece)
    : begin_(begin) {
  Registry& all = registry();
  const std::unique_lock lock(all.mutex);
  all.arenas.emplace(begin, Pieces{bytes, piece});
  ++all.count;
}

PieceBorders::~PieceBorders() {
  Registry& all = registry();
  const std::unique_lock lock(all.mutex);
  all.arenas.erase(begin_);
  --all.count;
}

std::size_t PieceBorders::before_next(const std::byte* data, std::size_t bytes) {
  Registry& all = registry();
  if (all.count.load(std::memory_order_acquire) == 0) return bytes;
  const std::shared_lock lock(all.mutex);
  auto after = all.arenas.upper_bound(data);
  if (after == all.arenas.begin()) return bytes;
  const auto& [begin, pieces] = *std::prev(after);
  const auto offset = static_cast<std::size_t>(data - begin);
  if (offset >= pieces.bytes) return bytes;
  return std::min(bytes, pieces.piece - offset % pieces.piece);
}

}  // namespace ps::detail
