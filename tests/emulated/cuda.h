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

// NOLINTBEGIN(bugprone-reserved-identifier): the names are CUDA's.
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
// Of the host thread that runs the block. Dynamic shared memory is declared `extern`: its
// definitions are below.
#define __shared__ constinit thread_local
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
#define __grid_constant__

inline thread_local uint3 threadIdx{};
inline thread_local uint3 blockIdx{};
inline thread_local dim3 blockDim{};
inline thread_local dim3 gridDim{};

// The names under which kernels declare their dynamic shared memory. They keep what the block
// before left there.
#define PENSTOCK_SHARED_MEMORY \
  [[maybe_unused]] static __shared__ __align__(1024) unsigned char memory[227 * 1024]
namespace ps::detail {
namespace {
PENSTOCK_SHARED_MEMORY;
}
namespace portable_attention {
PENSTOCK_SHARED_MEMORY;
}
namespace decoding {
PENSTOCK_SHARED_MEMORY;
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

inline unsigned __ballot_sync(unsigned mask, bool value) {
  const unsigned own = value ? 1U << ps::emulated::Block::current().fiber().lane() : 0;
  return ps::emulated::among_lanes(mask, own, "__ballot_sync", [&](auto& block) {
    unsigned all = 0;
    for (unsigned lane = 0; lane < 32; ++lane) {
      if ((mask >> lane & 1) != 0) all |= block.template shown_by<unsigned>(lane);
    }
    return all;
  });
}
template <class T>
unsigned __match_any_sync(unsigned mask, T value) {
  return ps::emulated::among_lanes(mask, value, "__match_any_sync", [&](auto& block) {
    unsigned equal = 0;
    for (unsigned lane = 0; lane < 32; ++lane) {
      if ((mask >> lane & 1) == 0) continue;
      equal |= static_cast<unsigned>(block.template shown_by<T>(lane) == value) << lane;
    }
    return equal;
  });
}

// One host thread runs all threads of a grid.
inline void __threadfence() {}
inline void __threadfence_system() {}
template <class T, class U>
T atomicAdd(T* to, U value) {
  const T before = *to;
  *to += static_cast<T>(value);
  return before;
}

template <class T>
T __ldg(const T* from) {
  return *from;
}
template <class T>
T __ldcs(const T* from) {
  return *from;
}
template <class T>
T __ldcv(const T* from) {
  return *from;
}
template <class T>
void __stcs(T* to, const T& value) {
  *to = value;
}

// Only for address.cuh, whose addresses nothing uses here.
inline std::size_t __cvta_generic_to_shared(const void* object) {
  return reinterpret_cast<std::size_t>(object);
}

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __ffs(unsigned x) { return x == 0 ? 0 : std::countr_zero(x) + 1; }
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
  return static_cast<unsigned>((std::uint64_t{high} << 32 | low) >> by % 32);
}
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selectors) {
  unsigned result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned byte = selectors >> 4 * i & 7;
    result |= static_cast<unsigned>((std::uint64_t{high} << 32 | low) >> 8 * byte & 0xFF) << 8 * i;
  }
  return result;
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
// NOLINTEND(bugprone-reserved-identifier)
