// What a kernel that traces itself writes into memory, and the host reads. It stands in base
// because both sides of it must agree: kit/trace.h writes, trace/kernel_trace.h reads.
//
//   KernelTraceHead | KernelTraceBlock a block | a slice per role of every block, block by block:
//                                                KernelTraceRole | KernelTraceRecord x capacity
//
// Memory that nothing wrote to is zero. Clocks are those of the multiprocessor that a block ran on.
#pragma once

#include <cstdint>

namespace ps {

inline constexpr std::uint64_t kernel_trace_magic = 0x6563'6172'746b'7370;  // "psktrace"
inline constexpr std::uint32_t kernel_trace_version = 1;
inline constexpr unsigned kernel_trace_pairs = 4;  // at each end of a block

// Written by the grid's first block.
struct alignas(16) KernelTraceHead {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t blocks, roles, capacity;  // how the buffer is cut
  std::uint64_t grid;                     // blocks of the grid; those past `blocks` left no trace
};

// At `clock`, the timer that all multiprocessors share went over to `ns`. None where ns is 0.
struct ClockPair {
  std::uint64_t clock;
  std::uint64_t ns;
};

enum class KernelTraceState : std::uint32_t { none = 0, begun = 1, ended = 2 };

struct alignas(16) KernelTraceBlock {
  KernelTraceState state;
  std::uint32_t block;
  std::uint32_t sm, end_sm;  // the same, or its clocks cannot be compared
  std::uint64_t begin, end;
  ClockPair at_begin[kernel_trace_pairs], at_end[kernel_trace_pairs];
};

// In front of its records.
struct alignas(16) KernelTraceRole {
  std::uint32_t count;
  std::uint32_t lost;  // that did not fit
  std::uint64_t unused;
};

struct alignas(16) KernelTraceRecord {
  std::uint64_t start;
  std::uint32_t length;  // in clocks; the largest number stands for anything longer
  std::uint32_t tile;
};

static_assert(sizeof(KernelTraceHead) == 32 && sizeof(KernelTraceBlock) == 160 &&
              sizeof(KernelTraceRole) == 16 && sizeof(KernelTraceRecord) == 16);

}  // namespace ps
