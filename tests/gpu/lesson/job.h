// The work of the tutorial's mistakes and of some of its exercises: every block copies tiles, one
// after the other, and turns each of them round, so that threads need what other threads asked for.
#pragma once

#include <vector_types.h>

namespace ps::lesson {

constexpr unsigned threads = 128;  // and 16-byte vectors of a tile: one for every thread

struct Job {
  const uint4* in;
  uint4* out;
  unsigned tiles;  // of every block
  unsigned last;   // vectors of a block's last tile, where it is shorter than the others
  long long late;  // clock cycles by which one warp comes late, as any warp may
};

}  // namespace ps::lesson
