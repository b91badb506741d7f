// ldmatrix and stmatrix: a warp moves 8x8 tiles of 16-bit elements between shared memory and
// registers, in the layout of mma.sync and wgmma. Lane 8t+i passes the address of row i of tile t,
// aligned to 16 bytes. Lane l holds elements 2(l%4) and 2(l%4)+1 of row l/4 of every tile.
#pragma once

#include <cstdint>

#include "penstock/kit/address.cuh"

namespace ps::kit {

// Loads four tiles, or two in the second form. `transposed` transposes each tile.
template <bool transposed = false>
__device__ inline void load_matrices(std::uint32_t (&to)[4], const void* row) {
  if constexpr (transposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row))
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row))
                 : "memory");
  }
}

template <bool transposed = false>
__device__ inline void load_matrices(std::uint32_t (&to)[2], const void* row) {
  if constexpr (transposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(to[0]), "=r"(to[1])
                 : "r"(shared_address(row))
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(to[0]), "=r"(to[1])
                 : "r"(shared_address(row))
                 : "memory");
  }
}

// Stores four tiles, or two in the second form. Needs compute capability 9.0.
template <bool transposed = false>
__device__ inline void store_matrices(void* row, const std::uint32_t (&from)[4]) {
  if constexpr (transposed) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                     shared_address(row)),
                 "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3])
                 : "memory");
  } else {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                     shared_address(row)),
                 "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3])
                 : "memory");
  }
}

template <bool transposed = false>
__device__ inline void store_matrices(void* row, const std::uint32_t (&from)[2]) {
  if constexpr (transposed) {
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(shared_address(row)),
        "r"(from[0]), "r"(from[1])
        : "memory");
  } else {
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(shared_address(row)),
        "r"(from[0]), "r"(from[1])
        : "memory");
  }
}

// Transposes one tile that the warp holds in registers. Needs compute capability 7.5.
__device__ inline std::uint32_t transposed(std::uint32_t tile) {
  std::uint32_t result;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(tile));
  return result;
}

}  // namespace ps::kit
