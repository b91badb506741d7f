// Reads and checks the buffer that a traced kernel wrote.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "penstock/base/kernel_record.h"

namespace ps::detail {

struct BlockRecords {
  KernelTraceBlock head;
  std::vector<ClockPair> pairs;                         // samples of clock and timer
  std::vector<std::vector<KernelTraceRecord>> records;  // by role
  std::uint64_t lost = 0;
};

struct KernelBuffer {
  KernelTraceHead head;
  std::vector<BlockRecords> blocks;  // the traced ones
};

// Throws InvalidArgument, naming "buffer".
KernelBuffer read_kernel_buffer(std::span<const std::byte> buffer);

}  // namespace ps::detail
