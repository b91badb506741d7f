// How many blocks the rungs with roles launch.
#pragma once

#include <cstddef>
#include <string>

namespace ladder::copy {

enum class Blocks {
  one,       // a block to a multiprocessor: what it overlaps, its roles overlap
  resident,  // as many as fit: they also overlap each other
};

inline std::string name(Blocks blocks) {
  return blocks == Blocks::one ? "1 block per SM" : "all blocks that fit";
}

}  // namespace ladder::copy
