// How long the L2 cache should keep what a copy brings through it.
#pragma once

#include <cstdint>

namespace ps::kit {

struct CacheHint {
  std::uint64_t policy;
};

// As the cache thinks best.
__device__ inline CacheHint evict_normal() {
  CacheHint hint;
  asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(hint.policy));
  return hint;
}

// For data that is read once.
__device__ inline CacheHint evict_first() {
  CacheHint hint;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(hint.policy));
  return hint;
}

// For data that other blocks will read soon.
__device__ inline CacheHint evict_last() {
  CacheHint hint;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(hint.policy));
  return hint;
}

}  // namespace ps::kit
