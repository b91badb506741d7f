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
}

void Pool::Blocks::release_down_to(std::size_t reserved) {
  while (statistics.reserved > reserved && !ready.empty()) {
    const auto largest = std::prev(ready.end());
    statistics.reserved -= largest->first;
    heap->free(largest->second);
    ready.erase(largest);
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

void* Pool::allocate(std::size_t bytes, detail::StreamImpl& stream) {
  const std::size_t wanted = block_bytes(bytes);
  Blocks& b = *blocks_;
  const std::lock_guard lock(b.mutex);
  void* data = take(wanted, &stream);
  if (data == nullptr) {
    const std::size_t limit = b.options.limit == 0 ? keep_all : b.options.limit;
    if (wanted <= limit && b.statistics.reserved > limit - wanted) {
      b.release_down_to(limit - wanted);
    }
    if (wanted <= limit && b.statistics.reserved <= limit - wanted) {
      data = b.heap->allocate(wanted, alignment);
    }
    if (data == nullptr) {
      ++b.statistics.failures;
      throw OutOfMemory("pool memory of cpu", bytes,
                        b.options.limit == 0
                            ? ""
                            : "the pool's limit is " + format_bytes(b.options.limit) + ", " +
                                  format_bytes(b.statistics.reserved) + " are reserved");
    }
    b.used[data] = {.bytes = wanted};
    b.statistics.reserved += wanted;
    b.statistics.reserved_high = std::max(b.statistics.reserved_high, b.statistics.reserved);
  }
  b.statistics.in_use += b.used[data].bytes;
  b.statistics.in_use_high = std::max(b.statistics.in_use_high, b.statistics.in_use);
  ++b.statistics.allocations;
  return data;
}

void Pool::free(void* data, std::size_t /*bytes*/, detail::StreamImpl& stream) noexcept {
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(blocks_->mutex);
    const auto it = blocks_->used.find(data);
    if (it == blocks_->used.end()) return;
    blocks_->statistics.in_use -= it->second.bytes;
    number = ++blocks_->frees;
    blocks_->freed[data] = {.bytes = it->second.bytes, .freed_on = &stream, .free_number = number};
    blocks_->used.erase(it);
  }
  stream.notify([blocks = blocks_, data, number] {
    const std::lock_guard lock(blocks->mutex);
    const auto it = blocks->freed.find(data);
    if (it == blocks->freed.end() || it->second.free_number != number) return;
    blocks->ready.emplace(it->second.bytes, data);
    blocks->freed.erase(it);
    const std::size_t threshold = blocks->options.release_threshold;
    if (threshold != keep_all) {
      blocks->release_down_to(blocks->statistics.in_use + threshold);
    }
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
