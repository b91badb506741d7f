// The words of CUDA C++ that kernels use, for a compiler that does not know them. Included before
// every kernel.
#pragma once

#include <cuda_runtime_api.h>
#include <vector_functions.h>
#include <vector_types.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "emulated/block.h"

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __align__
#undef __launch_bounds__
#undef __grid_constant__
#define __global__
#define __device__
#define __host__
// Dynamic shared memory, declared `extern`: its definitions are below. Static shared memory does
// not compile.
#define __shared__ __thread
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
#define __grid_constant__

inline thread_local uint3 threadIdx{};
inline thread_local uint3 blockIdx{};
inline thread_local dim3 blockDim{};
inline thread_local dim3 gridDim{};

// The names under which kernels declare their dynamic shared memory. They keep what the block
// before left there.
#define PENSTOCK_SHARED_MEMORY __thread unsigned char memory[227 * 1024] __align__(1024)
namespace ps::detail {
namespace {
[[maybe_unused]] PENSTOCK_SHARED_MEMORY;
}
namespace portable_attention {
[[maybe_unused]] static PENSTOCK_SHARED_MEMORY;
}
namespace decoding {
[[maybe_unused]] static PENSTOCK_SHARED_MEMORY;
}
}  // namespace ps::detail
#undef PENSTOCK_SHARED_MEMORY

inline void __syncthreads() { ps::emulated::Block::current().meet_all(); }
inline void __syncwarp(unsigned mask = ~0U) {
  ps::emulated::Block::current().meet_in_warp(mask, "__syncwarp");
}

template <class T>
T __shfl_sync(unsigned mask, T value, unsigned lane) {
  return ps::emulated::among_lanes(mask, value, "__shfl_sync", [&](auto& block) {
    return block.template shown_by<T>(lane % 32);
  });
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, unsigned bits) {
  return ps::emulated::among_lanes(mask, value, "__shfl_xor_sync", [&](auto& block) {
    return block.template shown_by<T>(block.fiber().lane() ^ bits);
  });
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned by) {
  return ps::emulated::among_lanes(mask, value, "__shfl_up_sync", [&](auto& block) {
    const unsigned lane = block.fiber().lane();
    return lane < by ? value : block.template shown_by<T>(lane - by);
  });
}
template <class T, class Better>
T among_all_lanes(unsigned mask, T value, const Better& better) {
  return ps::emulated::among_lanes(mask, value, "a reduction of a warp", [&](auto& block) {
    T best = value;
    for (unsigned lane = 0; lane < 32; ++lane) {
      if ((mask >> lane & 1) != 0) best = better(best, block.template shown_by<T>(lane));
    }
    return best;
  });
}
inline bool __any_sync(unsigned mask, bool value) {
  return among_all_lanes(mask, value, [](bool a, bool b) { return a || b; });
}
template <class T>
T __reduce_max_sync(unsigned mask, T value) {
  return among_all_lanes(mask, value, [](T a, T b) { return std::max(a, b); });
}
template <class T>
T __reduce_min_sync(unsigned mask, T value) {
  return among_all_lanes(mask, value, [](T a, T b) { return std::min(a, b); });
}

// One host thread runs all threads of a grid.
inline void __threadfence() {}

// Only for address.cuh, whose addresses nothing uses here.
inline std::size_t __cvta_generic_to_shared(const void* object) {
  return reinterpret_cast<std::size_t>(object);
}

inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(std::uint64_t{a} * b >> 32);
}
// 0 for a divisor above 2^126, as the CUDA C++ Programming Guide says.
inline float __fdividef(float a, float b) { return std::fabs(b) > 0x1p126F ? a * 0.F : a / b; }

using std::max;
using std::min;
inline unsigned min(unsigned a, int b) { return std::min(a, static_cast<unsigned>(b)); }
inline unsigned max(unsigned a, int b) { return std::max(a, static_cast<unsigned>(b)); }
