// How tensors are cut into the reads and copies of a load.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "penstock/base/view.h"

namespace ps::detail {

// Bytes of a slot that go to one tensor.
struct LoadCopy {
  std::size_t from = 0;  // offset in the slot
  MemoryView to{};
};

// Consecutive bytes of one file, which fit into a slot.
struct LoadPiece {
  std::size_t file = 0;
  std::uint64_t offset = 0;
  std::size_t in_slot = 0;  // where they begin in the slot
  std::size_t bytes = 0;
  std::vector<LoadCopy> copies;
};

// Bytes of a file, and where they go.
struct LoadRange {
  std::size_t file = 0;
  std::uint64_t offset = 0;
  MemoryView to{};
};

// In the order of the files. A piece begins in its slot as far behind a multiple of 4 KiB as in its
// file, so that reading it can bypass the page cache.
std::vector<LoadPiece> plan_load(std::vector<LoadRange> ranges, std::size_t slot_bytes);

}  // namespace ps::detail
