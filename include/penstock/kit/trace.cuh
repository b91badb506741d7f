// The in-kernel trace (kit/trace.h) with the GPU's clocks.
#pragma once

#include <cstdint>

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

}  // namespace ps::kit
