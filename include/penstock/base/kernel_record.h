// The memory layout of an in-kernel trace, which kit/trace.h writes and trace/kernel_trace.h reads:
//
//   KernelTraceHead
//   KernelTraceBlock    one per traced block
//   slices              one per role of every block, block by block:
//     KernelTraceRole
//     KernelTraceRecord x capacity
//
// Bytes that were not written are zero. Clocks count cycles of the SM that the block ran on.
#pragma once

#include <cstdint>

namespace ps {

inline constexpr std::uint64_t kernel_trace_magic = 0x6563'6172'746b'7370;  // "psktrace"
inline constexpr std::uint32_t kernel_trace_version = 1;
inline constexpr unsigned kernel_trace_pairs = 4;  // ClockPairs at each end of a block

// Written by the grid's first block.
struct alignas(16) KernelTraceHead {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t blocks, roles, capacity;  // the buffer's TraceShape
  std::uint64_t grid;                     // blocks in the grid; only the first `blocks` are traced
};

// When the SM's clock was at `clock`, the GPU's global timer changed to `ns`. Unused if ns is 0.
struct ClockPair {
  std::uint64_t clock;
  std::uint64_t ns;
};

enum class KernelTraceState : std::uint32_t { none = 0, begun = 1, ended = 2 };

struct alignas(16) KernelTraceBlock {
  KernelTraceState state;
  std::uint32_t block;
  std::uint32_t sm, end_sm;  // if they differ, the block's clocks cannot be compared
  std::uint64_t begin, end;
  ClockPair at_begin[kernel_trace_pairs], at_end[kernel_trace_pairs];
};

// Precedes its records.
struct alignas(16) KernelTraceRole {
  std::uint32_t count;
  std::uint32_t lost;  // records that did not fit
  std::uint64_t unused;
};

struct alignas(16) KernelTraceRecord {
  std::uint64_t start;
  std::uint32_t length;  // in cycles, saturated
  std::uint32_t tile;
};

static_assert(sizeof(KernelTraceHead) == 32 && sizeof(KernelTraceBlock) == 160 &&
              sizeof(KernelTraceRole) == 16 && sizeof(KernelTraceRecord) == 16);

}  // namespace ps
