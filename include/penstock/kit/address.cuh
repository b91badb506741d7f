// Shared-memory addresses, as PTX instructions take them.
#pragma once

#include <cstdint>

namespace ps::kit {

// The 32-bit address of an object in this block's shared memory.
__device__ inline std::uint32_t shared_address(const void* object) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(object));
}

// The address of the same object in block `rank` of the cluster.
__device__ inline std::uint32_t shared_address_in(std::uint32_t address, unsigned rank) {
  std::uint32_t mapped;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
  return mapped;
}

}  // namespace ps::kit
