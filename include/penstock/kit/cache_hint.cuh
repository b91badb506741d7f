// L2 cache policies for bulk and tensor copies.
#pragma once

#include <cstdint>

namespace ps::kit {

struct CacheHint {
  std::uint64_t policy;
};

// The default policy.
__device__ inline CacheHint evict_normal() {
  CacheHint hint;
  asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(hint.policy));
  return hint;
}

// Evicted first: for data that is used once.
__device__ inline CacheHint evict_first() {
  CacheHint hint;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(hint.policy));
  return hint;
}

// Evicted last: for data that other blocks will read soon.
__device__ inline CacheHint evict_last() {
  CacheHint hint;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(hint.policy));
  return hint;
}

}  // namespace ps::kit
