// Rows that move whole: of one sensor whose columns are side by side and have one mode, any but
// slerp. What the kernels for them share.
#pragma once

#include "ops/resample/near.cuh"
#include "ops/resample/strip.cuh"

namespace ps::resampling {

// Strides of values and results are in bytes. What every block asks for first stands first: it
// comes from memory line by line, too.
struct WholeWork {
  unsigned targets;  // of an episode
  float even;        // what even_place() wants
  Interpolation mode;
  Outside outside;
  const void* at;
  std::int64_t at_episode, at_target;
  detail::SensorWork sensor;
  unsigned char* out;
  std::int64_t out_episode, out_target;
  Strip strip;
  bool* valid;
  std::int64_t valid_episode, valid_target;
  Blank blank;
};

// The same, some targets of one episode to a block.
struct TileWork {
  TileWork(const WholeWork& all, unsigned targets_of_block)
      : tile(targets_of_block),
        tiles((all.targets + tile - 1) / tile),
        by_tiles(tiles),
        whole(all) {}

  unsigned tile;   // targets of a block
  unsigned tiles;  // of an episode
  kit::Divisor by_tiles;
  int margin = 0;  // times before and behind the place where a target's may be
  WholeWork whole;
};

// Rows of these elements are blended, or copied whatever they are.
template <class Element>
__device__ inline Interpolation mode_of(const WholeWork& work) {
  return std::is_same_v<Element, Moved> ? work.mode : Interpolation::linear;
}

// What a target's row is made of, and whether it lies within the episode.
template <class Number>
struct Made {
  Pair<Number> pair;
  bool within;
};

// Hardly ever. Not in line: a call of a few microseconds waits for instructions to come from
// memory, also for those that it passes over.
template <class Number, class Time>
__device__ __noinline__ Made<Number> pair_elsewhere(Near<Time> near, Times<Time> all, int passed,
                                                    Time t, Interpolation mode, Outside outside) {
  const Search<Time> other = search(near, all, passed, t, outside);
  return {pair_of<Number>(other.found.pick(mode, outside), other.shift), other.found.within()};
}

template <class Number, class Time>
__device__ inline Made<Number> find_pair(const Near<Time>& near, const Times<Time>& all, Time t,
                                         Interpolation mode, Outside outside) {
  const int passed = not_later(near, t);
  const Sight<Time> seen = sight<true>(near, passed, t, outside);
  if (!seen.clear) [[unlikely]] {
    return pair_elsewhere<Number>(near, all, passed, t, mode, outside);
  }
  return {pair_of<Number>(seen.found.pick(mode, outside), near.low), seen.found.within()};
}

}  // namespace ps::resampling
