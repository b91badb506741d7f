// What a rung of the GEMM ladder includes. A rung is a function that enqueues the product, and the
// kernel that its row describes; and the same with the kernel's trace switched on:
//
//   PENSTOCK_GEMM_RUNG("name", "One sentence.", (ladder::Instructions{.holds = {"HGMMA"}}),
//                      kernel, threads, dynamic_shared_bytes, run, traced);
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "gemm/support/element.cuh"
#include "gemm/support/problem.h"
#include "gemm/support/rungs.h"
#include "penstock/kit/launch.cuh"
#include "support/kernel_rung.h"
#include "support/kernel_use.cuh"

namespace gemm {

inline bool is_aligned(const void* pointer, unsigned bytes) {
  return reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0;
}

// The portable rung's, for what the rungs above it leave: rows that tensor maps cannot describe.
void mma_sync(const Problem& p, cudaStream_t stream);

// A tensor map needs rows of whole 16 bytes. Other products go through mma_sync: right, not fast.
inline bool has_tensor_maps(const Problem& p) {
  return p.k > 0 && p.k % 8 == 0 && is_aligned(p.a, 16) && is_aligned(p.b, 16);
}

}  // namespace gemm

#define PENSTOCK_GEMM_RUNG(title, text, instructions, kernel, threads, shared_bytes, run, traced) \
  static const gemm::detail::Registration product(__FILE__, title, run, traced);                  \
  static std::vector<ladder::Row> measure_rung(ladder::Context& context) {                        \
    return gemm::measure(context, run, ladder::kernel_use(kernel, threads, shared_bytes),         \
                         traced());                                                               \
  }                                                                                               \
  PENSTOCK_KERNEL_RUNG(title, text, instructions, measure_rung)
