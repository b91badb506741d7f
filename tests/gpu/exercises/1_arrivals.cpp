// Exercise 1, without a GPU: how many arrivals does a ring have to count?
//
// A block has three warps of 32 threads, and its ring is set up with ring.init(commits, releases).
//   Warp 0 loads. One thread of it, elected, acquires a slot, announces the bytes, and has a bulk
//   copy bring them: producer.acquire(bytes). The other 31 do nothing.
//   Warps 1 and 2 compute, both on every slot. When the 32 threads of a warp have read it, one
//   of them calls consumer.release(); the other 31 call consumer.skip_release().
#include "gpu/exercises/1_arrivals.h"

namespace ps::lesson {

Arrivals arrivals() {
  // GAP: as many as there are threads in those warps. Is that right?
  return {.commits = 32, .releases = 64};
}

}  // namespace ps::lesson
