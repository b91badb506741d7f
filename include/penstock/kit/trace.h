// What every role of a block did and when, written by the kernel itself. This is the writing side,
// for any source of clocks; trace.cuh has the GPU's. trace/kernel_trace.h reads what was written.
//
//   template <bool traced>
//   __global__ void kernel(..., ps::kit::TraceBuffer<traced> buffer) {
//     ps::kit::Trace<traced> trace(buffer);
//     trace.begin(threadIdx.x == 0);            // one thread of the block
//     if (...) {                                // a role
//       auto mine = trace.role(loader, threadIdx.x == 0);  // one thread of the role
//       for (...) {
//         const auto start = mine.now();
//         ...
//         mine.record(tile, start);
//       }
//     }
//     trace.end(threadIdx.x == 0);
//   }
//
// Trace<false> and what it gives are empty: the kernel compiles to the same instructions as without
// them. Switched on, a record costs two reads of the clock and a store of 16 bytes. No two threads
// write to the same place, so there are no atomics and no barriers.
//
// A clock is read when the instructions before it were issued, which is not when their results are
// there: a role that is to show a copy or a product waits for it first, as it has to anyway.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "penstock/base/checked.h"
#include "penstock/base/error.h"
#include "penstock/base/kernel_record.h"
#include "penstock/kit/config.h"

namespace ps::kit {

// How a buffer is cut: the first `blocks` of the grid are traced, and every role of each may record
// `capacity` spans; further ones are counted and not written.
struct TraceShape {
  unsigned blocks = 0;
  unsigned roles = 0;
  unsigned capacity = 0;
  // Whether blocks look for ticks of the shared timer as they begin and end, which takes several of
  // them. Without, they are not held up, and every pair of clocks is off by up to a tick: for
  // blocks that live for microseconds only.
  bool waits_for_ticks = true;
};

// Bytes that such a buffer needs. Throws InvalidArgument on a shape without blocks, roles or room.
inline std::size_t trace_bytes(const TraceShape& shape) {
  const auto check = [](const char* field, unsigned value) {
    if (value == 0) ps::detail::throw_invalid(field, "at least 1", "0");
  };
  check("shape.blocks", shape.blocks);
  check("shape.roles", shape.roles);
  check("shape.capacity", shape.capacity);
  const std::size_t slice =
      sizeof(KernelTraceRole) + std::size_t{shape.capacity} * sizeof(KernelTraceRecord);
  const std::size_t block =
      checked_add(checked_mul(slice, shape.roles, "shape"), sizeof(KernelTraceBlock), "shape");
  return checked_add(checked_mul(block, shape.blocks, "shape"), sizeof(KernelTraceHead), "shape");
}

// The kernel's argument: global memory of trace_bytes(shape), zero before the launch. A kernel
// reads it like any other argument; made from nothing it has the kernel record nothing.
template <bool on>
class TraceBuffer {
 public:
  TraceBuffer() = default;
  TraceBuffer(void* data, const TraceShape& shape)
      : head_(static_cast<KernelTraceHead*>(data)), shape_(shape) {
    trace_bytes(shape);
    if (data == nullptr || reinterpret_cast<std::uintptr_t>(data) % alignof(KernelTraceHead) != 0) {
      ps::detail::throw_invalid("data", "memory at a multiple of 16 bytes",
                                std::to_string(reinterpret_cast<std::uintptr_t>(data)));
    }
  }

  PENSTOCK_HD KernelTraceHead* head() const { return head_; }
  PENSTOCK_HD const TraceShape& shape() const { return shape_; }

  PENSTOCK_HD KernelTraceBlock* block(unsigned index) const {
    return reinterpret_cast<KernelTraceBlock*>(head_ + 1) + index;
  }
  PENSTOCK_HD KernelTraceRole* slice(unsigned index, unsigned role) const {
    // A role's head takes the room of one record.
    auto* const first = reinterpret_cast<KernelTraceRole*>(block(shape_.blocks));
    return first + (std::size_t{index} * shape_.roles + role) * (std::size_t{shape_.capacity} + 1);
  }

 private:
  KernelTraceHead* head_ = nullptr;
  TraceShape shape_{};
};

template <>
class TraceBuffer<false> {
 public:
  TraceBuffer() = default;
  TraceBuffer(void*, const TraceShape&) {}
};

// The records of one role, in the one thread that writes them; elsewhere it does nothing. What it
// counted is written when it goes.
template <bool on, class Source>
class RoleTrace {
 public:
  using Moment = std::uint64_t;

  PENSTOCK_HD RoleTrace(KernelTraceRole* slice, unsigned capacity, const Source& source)
      : slice_(slice), capacity_(capacity), source_(source) {}
  RoleTrace(const RoleTrace&) = delete;
  RoleTrace& operator=(const RoleTrace&) = delete;
  PENSTOCK_HD ~RoleTrace() {
    if (slice_ == nullptr) return;
    const std::uint32_t kept = seen_ < capacity_ ? seen_ : capacity_;
    *slice_ = KernelTraceRole{kept, seen_ - kept, 0};
  }

  PENSTOCK_HD Moment now() const { return source_.now(); }

  // From `start` until now, or until `end`.
  PENSTOCK_HD void record(unsigned tile, Moment start) { record(tile, start, source_.now()); }
  PENSTOCK_HD void record(unsigned tile, Moment start, Moment end) {
    if (slice_ == nullptr) return;
    if (seen_ < capacity_) {
      const Moment length = end - start;
      const auto kept = length < longest ? static_cast<std::uint32_t>(length) : longest;
      source_.store(reinterpret_cast<KernelTraceRecord*>(slice_ + 1) + seen_, {start, kept, tile});
    }
    if (seen_ != longest) ++seen_;  // wrapped, it would write over the first
  }

 private:
  static constexpr std::uint32_t longest = 0xffffffff;

  KernelTraceRole* slice_;
  std::uint32_t capacity_;
  std::uint32_t seen_ = 0;
  Source source_;
};

template <class Source>
class RoleTrace<false, Source> {
 public:
  struct Moment {};

  PENSTOCK_HD Moment now() const { return {}; }
  PENSTOCK_HD void record(unsigned, Moment) {}
  PENSTOCK_HD void record(unsigned, Moment, Moment) {}
};

// The trace of one block, in every thread of it. A Source tells the multiprocessor's clock, now(),
// and number, sm(), the timer that all of them share, nanoseconds(), and which block() of how many
// blocks() this is; it store()s a record.
template <bool on, class Source>
class BlockTrace {
 public:
  PENSTOCK_HD explicit BlockTrace(const TraceBuffer<on>& buffer, const Source& source = Source())
      : buffer_(buffer), source_(source) {}

  // By one thread of the block (`signs` is true in it) before its work and after it. It takes a few
  // microseconds, in which it looks for the timer's ticks: best a thread that has nothing to do
  // yet.
  PENSTOCK_HD void begin(bool signs) {
    if (!signs || !traced()) return;
    KernelTraceBlock& mine = *buffer_.block(index());
    mine.begin = source_.now();
    mine.block = index();
    mine.sm = source_.sm();
    if (index() == 0) {
      const TraceShape& shape = buffer_.shape();
      *buffer_.head() = KernelTraceHead{kernel_trace_magic, kernel_trace_version, shape.blocks,
                                        shape.roles,        shape.capacity,       source_.blocks()};
    }
    sample(mine.at_begin);
    mine.state = KernelTraceState::begun;
  }
  PENSTOCK_HD void end(bool signs) {
    if (!signs || !traced()) return;
    KernelTraceBlock& mine = *buffer_.block(index());
    mine.end = source_.now();
    mine.end_sm = source_.sm();
    sample(mine.at_end);
    mine.state = KernelTraceState::ended;
  }

  // `writes` is true in one thread of the role. A role that the shape has no room for is not
  // traced.
  PENSTOCK_HD RoleTrace<on, Source> role(unsigned number, bool writes) const {
    const bool recorded = writes && traced() && number < buffer_.shape().roles;
    return RoleTrace<on, Source>(recorded ? buffer_.slice(index(), number) : nullptr,
                                 buffer_.shape().capacity, source_);
  }

 private:
  // Several times the coarsest tick that is known, about a microsecond.
  static constexpr std::uint64_t longest_wait = 8192;

  PENSTOCK_HD unsigned index() const { return static_cast<unsigned>(source_.block()); }
  PENSTOCK_HD bool traced() const {
    return buffer_.head() != nullptr && source_.block() < buffer_.shape().blocks;
  }

  // The timer ticks far more coarsely than the clock, so only the moment of a tick tells anything:
  // the clock is read between the last look that saw the old time and the first that saw the new.
  // A timer that stands still is given up.
  PENSTOCK_HD void sample(ClockPair (&pairs)[kernel_trace_pairs]) const {
    if (!buffer_.shape().waits_for_ticks) {
      for (unsigned i = 0; i < 2; ++i) pairs[i] = ClockPair{source_.now(), source_.nanoseconds()};
      return;
    }
    std::uint64_t last = source_.nanoseconds();
    for (ClockPair& pair : pairs) {
      const std::uint64_t since = source_.now();
      std::uint64_t clock = since, ns = last;
      do {
        clock = source_.now();
        ns = source_.nanoseconds();
      } while (ns == last && clock - since < longest_wait);
      if (ns == last) return;
      pair = ClockPair{clock, ns};
      last = source_.nanoseconds();  // the store took its time
    }
  }

  TraceBuffer<on> buffer_;
  Source source_;
};

template <class Source>
class BlockTrace<false, Source> {
 public:
  PENSTOCK_HD explicit BlockTrace(const TraceBuffer<false>&, const Source& = Source()) {}
  PENSTOCK_HD void begin(bool) {}
  PENSTOCK_HD void end(bool) {}
  PENSTOCK_HD RoleTrace<false, Source> role(unsigned, bool) const { return {}; }
};

}  // namespace ps::kit
