// A kernel trace's buffer, read into memory and checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "penstock/base/kernel_record.h"

namespace ps::detail {

struct BlockRecords {
  KernelTraceBlock head;
  std::vector<ClockPair> pairs;                         // those that were found
  std::vector<std::vector<KernelTraceRecord>> records;  // by role
  std::uint64_t lost = 0;
};

struct KernelBuffer {
  KernelTraceHead head;
  std::vector<BlockRecords> blocks;  // that left a trace
};

// Throws InvalidArgument, naming "buffer".
KernelBuffer read_kernel_buffer(std::span<const std::byte> buffer);

}  // namespace ps::detail
