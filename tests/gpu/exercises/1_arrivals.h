#pragma once

namespace ps::lesson {

struct Arrivals {
  unsigned commits;   // at a slot's full barrier, in every round
  unsigned releases;  // at its empty barrier
};

Arrivals arrivals();

}  // namespace ps::lesson
