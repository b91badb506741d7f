// A memory pool as CUDA keeps it: blocks freed in stream order are reused by work that follows the
// free, and go back to the device at a synchronisation, down to a threshold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "fake/clock.h"
#include "host/cuda/driver.h"

namespace ps::test {

// The memory of one device.
struct Budget {
  std::size_t total = 0;
  std::size_t used = 0;

  bool take(std::size_t bytes) {
    if (bytes > total - used) return false;
    used += bytes;
    return true;
  }
  void give(std::size_t bytes) { used -= bytes; }
};

// Not thread-safe. Fresh memory holds 0xCD, freed memory 0xDB.
class FakePool {
 public:
  struct Settings {
    int device = 0;
    std::size_t limit = 0;  // 0: the device's memory
    std::size_t step = 0;   // memory is taken from the device in multiples of this
  };

  FakePool(Settings settings, Budget& budget) : settings_(settings), budget_(budget) {}
  ~FakePool();
  FakePool(const FakePool&) = delete;
  FakePool& operator=(const FakePool&) = delete;

  // Null when there is no memory. The block may be one whose free happens before `clock`, or one
  // whose free was reached.
  void* allocate(std::size_t bytes, const Clock& clock, const HostClock& host);

  // Opens the block to its user; called when the allocation's turn comes in its stream.
  static void open(void* data, std::size_t bytes);

  // The free was enqueued at this tick of this stream; reached() follows when its turn has come.
  void free(void* data, StreamNumber stream, Tick tick);
  std::size_t capacity(void* data) const { return blocks_.at(data).capacity; }
  static void fill_freed(void* data, std::size_t capacity);
  void reached(void* data, StreamNumber stream, Tick tick);
  // Takes the block out of use for good: its bytes may still be touched.
  void abandon(void* data);

  void set_threshold(std::uint64_t bytes) { threshold_ = bytes; }
  void synchronised() { shrink(threshold_); }
  // Gives free blocks back until at most `keep` bytes are reserved.
  void shrink(std::uint64_t keep);

  int device() const { return settings_.device; }
  cuda::PoolUse use() const;

 private:
  enum class BlockState : std::uint8_t { live, free_pending, free_reached, abandoned };

  struct Block {
    std::size_t capacity = 0;
    BlockState state = BlockState::live;
    StreamNumber stream = 0;  // where it was freed
    Tick tick = 0;
  };

  void* take_free(std::size_t bytes, const Clock& clock, const HostClock& host);
  void* take_fresh(std::size_t bytes);
  bool release_one();
  std::size_t reserved_for(std::size_t bytes) const;
  bool resize(std::size_t bytes);

  Settings settings_;
  Budget& budget_;
  std::uint64_t threshold_ = 0;
  std::map<void*, Block> blocks_;
  std::size_t held_ = 0;  // bytes of all blocks
  cuda::PoolUse use_;
};

}  // namespace ps::test
