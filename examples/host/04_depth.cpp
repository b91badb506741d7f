// How many slots does a ring need? One slot is sequential again; two overlap, if every step takes
// equally long; a third and a fourth absorb the jitter; more only cost memory. The Pipeline places
// the waits of the rung before: support/two_way.cpp is its whole program.
#include "support/two_way.h"

namespace {

std::vector<ladder::Row> run(ladder::Context& context) {
  std::vector<ladder::Row> rows;
  for (const std::size_t depth : {1, 2, 3, 4, 8}) {
    rows.push_back(
        ladder::measure_two_way(context, "depth " + std::to_string(depth), {.depth = depth}));
  }
  return rows;
}

PENSTOCK_RUNG("depth", "Rings of 1, 2, 3, 4 and 8 slots: stages overlap from 2 slots on.", run);

}  // namespace
