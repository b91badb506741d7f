// Copies of blocks from page-locked memory to a GPU and nothing else, in several ways: what the
// link allows.
#pragma once

#include <cstddef>
#include <vector>

#include "penstock/base/view.h"
#include "penstock/host/buffer.h"
#include "penstock/host/stream.h"

namespace bench {

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

  // With one copy for blocks that lie behind each other.
  void joined(const std::vector<ps::MemoryView>& blocks) const {
    ps::MemoryView all{};
    const auto send = [&] {
      if (all.bytes > 0) ps::copy(memory_.view().sub(0, all.bytes), all, first_);
    };
    for (const ps::MemoryView& block : blocks) {
      if (block.data == all.data + all.bytes && all.bytes + block.bytes <= memory_.bytes()) {
        all.bytes += block.bytes;
        continue;
      }
      send();
      all = block;
    }
    send();
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
