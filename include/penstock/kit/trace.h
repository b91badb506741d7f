// Records what each role of a block does and when, from inside a kernel. This header is independent
// of the clock source; trace.cuh has the GPU's. trace/kernel_trace.h reads the records on the host.
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
// Trace<false> is empty: the kernel compiles to the same instructions as without tracing. With
// Trace<true> a record costs two clock reads and one 16-byte store, without atomics or barriers.
//
// The clock is read when the preceding instructions have been issued, not when their results have
// arrived. To record the end of a copy or a product, wait for it first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "penstock/base/checked.h"
#include "penstock/base/error.h"
#include "penstock/base/kernel_record.h"
#include "penstock/kit/config.h"

namespace ps::kit {

// The size of a trace buffer. The first `blocks` blocks of the grid are traced. Each role of a
// block records up to `capacity` spans; further spans are counted but not stored.
struct TraceShape {
  unsigned blocks = 0;
  unsigned roles = 0;
  unsigned capacity = 0;
  // Whether begin() and end() wait for a few ticks of the global timer, about a microsecond each.
  // Without it, times are off by up to one tick; use that for blocks that run for microseconds.
  bool waits_for_ticks = true;
};

// The size of the buffer in bytes. Throws InvalidArgument if a count is 0 or the size overflows.
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

// The kernel's argument: `data` is global memory of trace_bytes(shape) bytes, aligned to 16 bytes
// and zero before the launch. With a default-constructed buffer the kernel records nothing.
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
    // KernelTraceRole has the size of one record.
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

// The records of one role. Only one thread writes; in all others the calls do nothing. The
// destructor writes the number of records.
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

  // Records a span of `tile` from `start` until now, or until `end`.
  PENSTOCK_HD void record(unsigned tile, Moment start) { record(tile, start, source_.now()); }
  PENSTOCK_HD void record(unsigned tile, Moment start, Moment end) {
    if (slice_ == nullptr) return;
    if (seen_ < capacity_) {
      const Moment length = end - start;
      const auto kept = length < longest ? static_cast<std::uint32_t>(length) : longest;
      source_.store(reinterpret_cast<KernelTraceRecord*>(slice_ + 1) + seen_, {start, kept, tile});
    }
    if (seen_ != longest) ++seen_;  // must not wrap: it would overwrite the first record
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

// The trace of one block; every thread has one. A Source provides now(), the SM's clock; sm(), the
// SM's number; nanoseconds(), the global timer; block() and blocks(), the block's index and the
// number of blocks; and store(), which writes a record.
template <bool on, class Source>
class BlockTrace {
 public:
  PENSTOCK_HD explicit BlockTrace(const TraceBuffer<on>& buffer, const Source& source = Source())
      : buffer_(buffer), source_(source) {}

  // All threads call these, before and after the work; `records` is true in the one thread that
  // records the block. It takes that thread a few microseconds, so choose one that is idle then.
  PENSTOCK_HD void begin(bool records) {
    if (!records || !traced()) return;
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
  PENSTOCK_HD void end(bool records) {
    if (!records || !traced()) return;
    KernelTraceBlock& mine = *buffer_.block(index());
    mine.end = source_.now();
    mine.end_sm = source_.sm();
    sample(mine.at_end);
    mine.state = KernelTraceState::ended;
  }

  // `writes` is true in one thread of the role. Roles with numbers of TraceShape::roles or more are
  // not traced.
  PENSTOCK_HD RoleTrace<on, Source> role(unsigned number, bool writes) const {
    const bool recorded = writes && traced() && number < buffer_.shape().roles;
    return RoleTrace<on, Source>(recorded ? buffer_.slice(index(), number) : nullptr,
                                 buffer_.shape().capacity, source_);
  }

 private:
  // In cycles: several times the coarsest known tick, about a microsecond.
  static constexpr std::uint64_t longest_wait = 8192;

  PENSTOCK_HD unsigned index() const { return static_cast<unsigned>(source_.block()); }
  PENSTOCK_HD bool traced() const {
    return buffer_.head() != nullptr && source_.block() < buffer_.shape().blocks;
  }

  // The timer is much coarser than the clock, so the clock is read at the moment of a tick: between
  // the last read of the old time and the first read of the new one. Gives up if the timer does not
  // advance.
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
      last = source_.nanoseconds();  // the store may have taken longer than a tick
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
