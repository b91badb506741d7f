// Copies of blocks from page-locked memory to a GPU and nothing else, in several ways: what the
// link allows.
#pragma once

#include <cstddef>
#include <vector>

#include "penstock/base/view.h"
#include "penstock/host/buffer.h"
#include "penstock/host/stream.h"

namespace bench {

// One view for blocks that lie behind each other, of at most `most_bytes`. A gap of less than 64
// bytes is padding and becomes part of it.
inline std::vector<ps::MemoryView> joined_blocks(const std::vector<ps::MemoryView>& blocks,
                                                 std::size_t most_bytes) {
  std::vector<ps::MemoryView> all;
  for (const ps::MemoryView& block : blocks) {
    if (!all.empty() && block.data >= all.back().data + all.back().bytes) {
      const auto before = static_cast<std::size_t>(block.data - all.back().data);
      if (before - all.back().bytes < 64 && before + block.bytes <= most_bytes) {
        all.back().bytes = before + block.bytes;
        continue;
      }
    }
    all.push_back(block);
  }
  return all;
}

class LinkCopies {
 public:
  // Of blocks of at most `most_bytes`. The copies overwrite each other.
  LinkCopies(const ps::Device& device, std::size_t most_bytes)
      : first_(device),
        second_(device),
        block_bytes_(most_bytes),
        memory_(device, places * most_bytes) {}

  // Each function waits until all blocks have been copied.
  void one_by_one(const std::vector<ps::MemoryView>& blocks) const {
    std::size_t next = 0;
    for (const ps::MemoryView& block : blocks) ps::copy(place(next++, block), block, first_);
    first_.synchronize();
  }

  // By two streams, whose copies may overlap at their ends.
  void by_two_streams(const std::vector<ps::MemoryView>& blocks) const {
    std::size_t next = 0;
    for (const ps::MemoryView& block : blocks) {
      ps::copy(place(next, block), block, next % 2 == 0 ? first_ : second_);
      ++next;
    }
    first_.synchronize();
    second_.synchronize();
  }

  // In copies that are as large as the memory allows; see joined_blocks().
  void joined(const std::vector<ps::MemoryView>& blocks) const {
    for (const ps::MemoryView& all : joined_blocks(blocks, memory_.bytes())) {
      ps::copy(memory_.view().sub(0, all.bytes), all, first_);
    }
    first_.synchronize();
  }

 private:
  static constexpr std::size_t places = 4;

  ps::MemoryView place(std::size_t number, const ps::MemoryView& block) const {
    return memory_.view().sub(number % places * block_bytes_, block.bytes);
  }

  ps::Stream first_, second_;
  std::size_t block_bytes_;
  ps::DeviceBuffer memory_;
};

}  // namespace bench
