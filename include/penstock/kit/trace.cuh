// The in-kernel trace (kit/trace.h) with the GPU's clocks.
#pragma once

#include <cstdint>
#include <new>

#include "penstock/kit/trace.h"

namespace ps::kit {

// The memory clobbers keep the compiler from moving loads and stores across a clock read.
struct SmSource {
  __device__ static std::uint64_t now() {
    std::uint64_t clock;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(clock)::"memory");
    return clock;
  }
  __device__ static std::uint64_t nanoseconds() {
    std::uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
    return ns;
  }
  // Volatile, because a preempted block may resume on another SM.
  __device__ static unsigned sm() {
    unsigned number;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(number));
    return number;
  }
  __device__ static std::uint64_t block() {
    return blockIdx.x + gridDim.x * (blockIdx.y + std::uint64_t{gridDim.y} * blockIdx.z);
  }
  __device__ static std::uint64_t blocks() {
    return std::uint64_t{gridDim.x} * gridDim.y * gridDim.z;
  }
  // A streaming store, which does not displace the kernel's data in the caches.
  __device__ static void store(KernelTraceRecord* to, const KernelTraceRecord& record) {
    const std::uint64_t rest = std::uint64_t{record.tile} << 32 | record.length;
    __stcs(reinterpret_cast<ulonglong2*>(to), make_ulonglong2(record.start, rest));
  }
};

template <bool on>
using Trace = BlockTrace<on, SmSource>;

// The records of one role, as RoleTrace, with their state in shared memory: for roles whose threads
// have no registers to spare.
template <bool on>
class SharedRoleTrace {
 public:
  using Spans = RoleTrace<on, SmSource>;
  using Moment = typename Spans::Moment;
  struct Shared {
    alignas(Spans) unsigned char bytes[sizeof(Spans)];

    __device__ Spans& spans() { return *reinterpret_cast<Spans*>(bytes); }
  };

  // `writes` is true in one thread of the role, the only one that accesses `shared`.
  __device__ SharedRoleTrace(Shared& shared, const Trace<on>& trace, unsigned number, bool writes)
      : shared_(shared), writes_(writes) {
    if (writes_) new (shared_.bytes) Spans(trace.role(number, true));
  }
  SharedRoleTrace(const SharedRoleTrace&) = delete;
  SharedRoleTrace& operator=(const SharedRoleTrace&) = delete;
  __device__ ~SharedRoleTrace() {
    if (writes_) shared_.spans().~Spans();
  }

  __device__ Moment now() const { return SmSource::now(); }
  __device__ void record(unsigned tile, Moment start) { record(tile, start, now()); }
  __device__ void record(unsigned tile, Moment start, Moment end) {
    if (writes_) shared_.spans().record(tile, start, end);
  }

 private:
  Shared& shared_;
  bool writes_;
};

template <>
class SharedRoleTrace<false> {
 public:
  using Moment = RoleTrace<false, SmSource>::Moment;
  struct Shared {};

  __device__ SharedRoleTrace(Shared&, const Trace<false>&, unsigned, bool) {}
  __device__ Moment now() const { return {}; }
  __device__ void record(unsigned, Moment) {}
  __device__ void record(unsigned, Moment, Moment) {}
};

}  // namespace ps::kit
