// Hands work items to a block, whichever is free first. One thread takes them from the table and
// passes them to the others through shared memory, in steps that are spread over the loads of the
// item before, so that nobody waits for global memory.
#pragma once

#include <cstdint>

#include "ops/moe/portable_tiles.cuh"

namespace ps::detail::moe_portable {

class Queue {
 public:
  // Items that are in the block at a time: three steps may be three items, and the next one is
  // fetched before.
  static constexpr unsigned size = 8;
  struct Shared {
    std::uint64_t words[size];
  };

  // Publishes the block's first item.
  __device__ Queue(Shared& shared, const Items& items)
      : shared_(shared), items_(items), count_(*items.count), word_(word(blockIdx.x)) {
    publish();
  }

  // The three parts of handing over the next item. Between publish() and item() the block must
  // synchronise.
  __device__ void take_number() {
    if (threadIdx.x == 0) taken_ = atomicAdd(items_.taken, 1);
  }
  __device__ void fetch() {
    if (threadIdx.x == 0) word_ = word(gridDim.x + taken_);
  }
  __device__ void publish() {
    if (threadIdx.x == 0) shared_.words[published_ % size] = word_;
    ++published_;
  }

  // The item that was published last, and item `number` of the block. Without rows: there are no
  // more.
  __device__ MoeItem latest() const { return item(published_ - 1); }
  __device__ MoeItem item(unsigned number) const {
    return MoeItem::unpacked(shared_.words[number % size]);
  }

 private:
  __device__ std::uint64_t word(unsigned number) const {
    return number < count_ ? items_.words[number] : 0;
  }

  Shared& shared_;
  const Items& items_;
  unsigned count_, taken_ = 0, published_ = 0;
  std::uint64_t word_;
};

}  // namespace ps::detail::moe_portable
