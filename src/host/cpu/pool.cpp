#include "host/cpu/pool.h"

#include <algorithm>

#include "penstock/base/checked.h"
#include "penstock/base/error.h"
#include "penstock/base/units.h"

namespace ps::cpu {
namespace {

constexpr std::size_t alignment = 256;

// Sizes are rounded so that batches of nearly equal size share blocks.
std::size_t block_bytes(std::size_t bytes) {
  return align_up(bytes, bytes > MiB ? 64 * KiB : alignment, "bytes");
}

// A larger block is used when it wastes at most a quarter.
bool fits(std::size_t block, std::size_t wanted) {
  return block >= wanted && block - wanted <= wanted / 4;
}

}  // namespace

Pool::Blocks::~Blocks() {
  for (const auto& [size, data] : ready) heap->free(data);
  for (const auto& [data, block] : freed) heap->free(data);
  for (const auto& [data, block] : used) heap->free(data);
  for (const auto& [number, data] : leaving) heap->free(data);
}

void Pool::Blocks::release_down_to(std::size_t reserved) {
  while (statistics.reserved > reserved && !ready.empty()) {
    const auto largest = std::prev(ready.end());
    statistics.reserved -= largest->first;
    heap->free(largest->second);
    ready.erase(largest);
  }
}

void Pool::Blocks::reach(std::uint64_t number, void* data) {
  unreached.erase(number);
  reached.notify_all();
  if (leaving.erase(number) > 0) {
    heap->free(data);
    return;
  }
  const auto it = freed.find(data);
  if (it == freed.end() || it->second.free_number != number) return;  // taken again meanwhile
  ready.emplace(it->second.bytes, data);
  freed.erase(it);
  if (options.release_threshold != keep_all) {
    release_down_to(statistics.in_use + options.release_threshold);
  }
}

// With the mutex held: a block that `stream` may use now, or null.
void* Pool::take(std::size_t bytes, const void* stream) {
  Blocks& b = *blocks_;
  for (auto it = b.freed.begin(); it != b.freed.end(); ++it) {
    if (it->second.freed_on == stream && fits(it->second.bytes, bytes)) {
      void* data = it->first;
      b.used[data] = {.bytes = it->second.bytes};
      b.freed.erase(it);
      return data;
    }
  }
  const auto it = b.ready.lower_bound(bytes);
  if (it == b.ready.end() || !fits(it->first, bytes)) return nullptr;
  void* data = it->second;
  b.used[data] = {.bytes = it->first};
  b.ready.erase(it);
  return data;
}

// What may be reserved beside a new block of this size; none when the limit forbids the block.
std::optional<std::size_t> Pool::room_beside(std::size_t bytes) const {
  const std::size_t limit = blocks_->options.limit == 0 ? keep_all : blocks_->options.limit;
  if (bytes > limit) return std::nullopt;
  return limit - bytes;
}

// With the mutex held: a new block, or null.
void* Pool::take_fresh(std::size_t bytes) {
  Blocks& b = *blocks_;
  const auto room = room_beside(bytes);
  if (!room) return nullptr;
  b.release_down_to(*room);
  if (b.statistics.reserved > *room) return nullptr;
  void* data = b.heap->allocate(bytes, alignment);
  if (data == nullptr) return nullptr;
  b.used[data] = {.bytes = bytes};
  b.statistics.reserved += bytes;
  b.statistics.reserved_high = std::max(b.statistics.reserved_high, b.statistics.reserved);
  return data;
}

// With the mutex held: where the limit forbids a new block, memory that other streams are going to
// free, as cudaMallocAsync takes it: the stream waits, not the caller. Either one block that is
// large enough, or the room of several, which go back to the heap before the new one is touched.
Pool::Promise Pool::take_unreached(std::size_t bytes) {
  Blocks& b = *blocks_;
  std::map<std::uint64_t, void*> oldest_first;
  for (const auto& [data, block] : b.freed) oldest_first.emplace(block.free_number, data);
  for (const auto& [number, data] : oldest_first) {
    const std::size_t has = b.freed.at(data).bytes;
    if (!fits(has, bytes)) continue;
    b.freed.erase(data);
    b.used[data] = {.bytes = has};
    return {data, {number}};
  }
  const auto room = room_beside(bytes);
  std::size_t kept = b.statistics.reserved;
  for (const auto& [number, data] : oldest_first) kept -= b.freed.at(data).bytes;
  if (!room || kept > *room) return {};
  Promise promise;
  for (const auto& [number, data] : oldest_first) {
    if (b.statistics.reserved <= *room) break;
    b.statistics.reserved -= b.freed.at(data).bytes;
    b.freed.erase(data);
    b.leaving.emplace(number, data);
    promise.frees.push_back(number);
  }
  promise.data = take_fresh(bytes);
  return promise;
}

// The stream waits until these frees have been reached.
void Pool::wait_for(std::vector<std::uint64_t> frees, detail::StreamImpl& stream) {
  stream.call([blocks = blocks_, frees = std::move(frees)](const std::exception_ptr&) {
    std::unique_lock lock(blocks->mutex);
    blocks->reached.wait(lock, [&] {
      return std::none_of(frees.begin(), frees.end(),
                          [&](std::uint64_t number) { return blocks->unreached.contains(number); });
    });
  });
}

// The mutex is held until the stream has its task, here and in free(): another thread must not take
// a block before the stream that frees it knows of it.
void* Pool::allocate(std::size_t bytes, detail::StreamImpl& stream) {
  const std::size_t wanted = block_bytes(bytes);
  Blocks& b = *blocks_;
  const std::lock_guard lock(b.mutex);
  Promise taken{take(wanted, &stream)};
  if (taken.data == nullptr) taken.data = take_fresh(wanted);
  if (taken.data == nullptr && b.options.limit != 0) taken = take_unreached(wanted);
  if (taken.data == nullptr) {
    ++b.statistics.failures;
    throw OutOfMemory("pool memory of cpu", bytes,
                      b.options.limit == 0
                          ? ""
                          : "the pool's limit is " + format_bytes(b.options.limit) + ", " +
                                format_bytes(b.statistics.reserved) + " are reserved");
  }
  b.statistics.in_use += b.used[taken.data].bytes;
  b.statistics.in_use_high = std::max(b.statistics.in_use_high, b.statistics.in_use);
  ++b.statistics.allocations;
  if (!taken.frees.empty()) wait_for(std::move(taken.frees), stream);
  return taken.data;
}

void Pool::free(void* data, std::size_t /*bytes*/, detail::StreamImpl& stream) noexcept {
  Blocks& b = *blocks_;
  const std::lock_guard lock(b.mutex);
  const auto it = b.used.find(data);
  if (it == b.used.end()) return;
  b.statistics.in_use -= it->second.bytes;
  const std::uint64_t number = ++b.frees;
  b.unreached.insert(number);
  b.freed[data] = {.bytes = it->second.bytes, .freed_on = &stream, .free_number = number};
  b.used.erase(it);
  stream.notify([blocks = blocks_, number, data](const std::exception_ptr&) {
    const std::lock_guard reached(blocks->mutex);
    blocks->reach(number, data);
  });
}

void Pool::trim(std::size_t keep) {
  const std::lock_guard lock(blocks_->mutex);
  blocks_->release_down_to(keep);
}

PoolStatistics Pool::statistics() {
  const std::lock_guard lock(blocks_->mutex);
  return blocks_->statistics;
}

}  // namespace ps::cpu
