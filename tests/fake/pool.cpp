#include "fake/pool.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "fake/poison.h"

namespace ps::test {
namespace {

constexpr std::size_t alignment = 256;

std::size_t round_up(std::size_t value, std::size_t step) {
  return (value + step - 1) / step * step;
}

void give_back(void* data, std::size_t capacity) {
  unpoison(data, capacity);
  std::free(data);
}

}  // namespace

FakePool::~FakePool() {
  for (const auto& [data, block] : blocks_) give_back(data, block.capacity);
  budget_.give(use_.reserved);
}

std::size_t FakePool::reserved_for(std::size_t bytes) const {
  return round_up(bytes, settings_.step);
}

// Makes the reserved memory fit `bytes` of blocks; false when the limit or the device forbids it.
bool FakePool::resize(std::size_t bytes) {
  const std::size_t wanted = reserved_for(bytes);
  if (wanted > use_.reserved) {
    if (settings_.limit != 0 && wanted > reserved_for(settings_.limit)) return false;
    if (!budget_.take(wanted - use_.reserved)) return false;
  } else {
    budget_.give(use_.reserved - wanted);
  }
  use_.reserved = wanted;
  use_.reserved_high = std::max(use_.reserved_high, wanted);
  held_ = bytes;
  return true;
}

void* FakePool::allocate(std::size_t bytes, const Clock& clock, const HostClock& host) {
  void* data = take_free(bytes, clock, host);
  if (data == nullptr) data = take_fresh(bytes);
  if (data == nullptr) return nullptr;
  Block& block = blocks_.at(data);
  block.state = BlockState::live;
  use_.in_use += block.capacity;
  use_.in_use_high = std::max(use_.in_use_high, use_.in_use);
  return data;
}

void* FakePool::take_free(std::size_t bytes, const Clock& clock, const HostClock& host) {
  for (auto& [data, block] : blocks_) {
    const bool fits = bytes <= block.capacity && block.capacity <= 2 * round_up(bytes, alignment);
    const bool follows =
        block.state == BlockState::free_pending &&
        (block.tick <= clock.at(block.stream) || host.knows(block.stream, block.tick));
    if (fits && (follows || block.state == BlockState::free_reached)) return data;
  }
  return nullptr;
}

void* FakePool::take_fresh(std::size_t bytes) {
  const std::size_t capacity = round_up(bytes, alignment);
  if (capacity < bytes) return nullptr;
  while (!resize(held_ + capacity)) {
    if (!release_one()) return nullptr;
  }
  void* data = std::aligned_alloc(alignment, capacity);
  if (data == nullptr) {
    resize(held_ - capacity);
    return nullptr;
  }
  std::memset(data, 0xCD, capacity);
  poison(data, capacity);
  blocks_.emplace(data, Block{.capacity = capacity});
  return data;
}

void FakePool::open(void* data, std::size_t bytes) { unpoison(data, bytes); }

void FakePool::free(void* data, StreamNumber stream, Tick tick) {
  Block& block = blocks_.at(data);
  use_.in_use -= block.capacity;
  block.state = BlockState::free_pending;
  block.stream = stream;
  block.tick = tick;
}

void FakePool::fill_freed(void* data, std::size_t capacity) {
  unpoison(data, capacity);
  std::memset(data, 0xDB, capacity);
  poison(data, capacity);
}

void FakePool::reached(void* data, StreamNumber stream, Tick tick) {
  // The block may already have been handed out again, to work that follows the free.
  Block& block = blocks_.at(data);
  if (block.state == BlockState::free_pending && block.stream == stream && block.tick == tick) {
    block.state = BlockState::free_reached;
  }
}

void FakePool::abandon(void* data) {
  Block& block = blocks_.at(data);
  use_.in_use -= block.capacity;
  block.state = BlockState::abandoned;
}

bool FakePool::release_one() {
  const auto found = std::find_if(blocks_.begin(), blocks_.end(), [](const auto& entry) {
    return entry.second.state == BlockState::free_reached;
  });
  if (found == blocks_.end()) return false;
  const std::size_t capacity = found->second.capacity;
  give_back(found->first, capacity);
  blocks_.erase(found);
  resize(held_ - capacity);
  return true;
}

void FakePool::shrink(std::uint64_t keep) {
  while (use_.reserved > keep && release_one()) {
  }
}

cuda::PoolUse FakePool::use() const { return use_; }

}  // namespace ps::test
