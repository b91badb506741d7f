// Fences of emulated kernels, whose memory has one order, and barriers of parts of a block.
#pragma once

#include "emulated/block.h"

namespace ps::kit {

inline void fence_global_to_async() {}

inline void named_barrier_wait(unsigned number, unsigned threads) {
  emulated::Block& block = emulated::Block::current();
  block.meet(block.named(number), threads, "named_barrier_wait");
}
inline void named_barrier_arrive(unsigned number, unsigned threads) {
  emulated::Block& block = emulated::Block::current();
  block.arrive(block.named(number), threads);
}

}  // namespace ps::kit
