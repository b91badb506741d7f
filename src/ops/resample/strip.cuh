// Moving: columns side by side, the same for every target, made of rows of values.
#pragma once

#include "ops/resample/element.cuh"
#include "ops/resample/gpu.cuh"

namespace ps::resampling {

// Strides are in bytes.
struct Strip {
  unsigned vectors = 0;  // of a row
  kit::Divisor by_vectors{1};
  int sample = 0;           // from a row of values to the next
  std::int64_t target = 0;  // from a row of results to the next
  // Rows that threads make abreast, each thread staying in its columns, so that it works out its
  // place in a row once; 0 where they had better go from vector to vector, whatever row it is of.
  unsigned abreast = 0;
};

// What stands where there is no row: bits of an element, filling 8 bytes.
struct Blank {
  std::uint64_t fill = 0, missing = 0;
};

// Results lie in global memory, also where a compiler cannot see that.
template <unsigned bytes>
__device__ inline void store_global(unsigned char* to, const Vector<bytes>& v) {
  __builtin_assume(__isGlobal(to));
  store(to, v);
}

// So do rows of values.
template <unsigned bytes>
__device__ inline Vector<bytes> load_global(const unsigned char* from) {
  __builtin_assume(__isGlobal(from));
  return load<bytes>(from);
}

// What a target's row is made of: a row of values, blended with the next one where weight is not 0;
// as blend() wants it, it is -0 then. Two addresses are no rows.
template <class Number>
struct alignas(16) Source {
  const unsigned char* row;
  Number weight;

  static __device__ const unsigned char* missing() { return nullptr; }
  static __device__ const unsigned char* fill() {
    return reinterpret_cast<const unsigned char*>(1);
  }
  __device__ bool is_row() const { return reinterpret_cast<std::uintptr_t>(row) > 1; }
  // From the row's own to what it is blended with. `sample`: from a row of values to the next.
  __device__ std::int64_t later(std::int64_t sample) const { return weight != 0 ? sample : 0; }
};

// `rows`: from the one that the pick calls 0.
template <class Number, class Index>
__device__ inline Source<Number> source_of(const PickIn<Index>& picked, const unsigned char* rows,
                                           std::int64_t sample) {
  if (picked.action == Action::missing) return {Source<Number>::missing(), 0};
  if (picked.action == Action::fill) return {Source<Number>::fill(), 0};
  const auto weight = static_cast<Number>(picked.weight);
  const bool blends = picked.action == Action::blend && weight != 0;
  return {rows + picked.first * sample, blends ? weight : -Number{0}};
}

// One vector, `at` bytes from a source's first, which may be no row, or lie in shared memory.
template <class Element, unsigned bytes, class Number>
__device__ inline Vector<bytes> vector_of(const Source<Number>& from, std::int64_t at,
                                          std::int64_t sample, const Blank& blank) {
  if (!from.is_row()) {
    return repeated<bytes>(from.row == Source<Number>::fill() ? blank.fill : blank.missing);
  }
  Vector<bytes> x = load<bytes>(from.row + at);
  if constexpr (!std::is_same_v<Element, Moved>) {
    if (from.weight != 0) {
      x = blended_vector<Element>(x, load<bytes>(from.row + sample + at), from.weight);
    }
  }
  return x;
}

// What a Source is, of one episode's rows, by their numbers: a product makes an address of each,
// also of the one that may be blended with.
template <class Number>
struct alignas(16) Pair {
  int first, second;  // one twice where nothing is blended
  Number weight;

  static constexpr int missing = -1, fill = -2;
  __device__ bool is_row() const { return first >= 0; }
  __device__ Source<Number> source(const unsigned char* rows, std::int64_t sample) const {
    if (first == missing) return {Source<Number>::missing(), 0};
    if (first == fill) return {Source<Number>::fill(), 0};
    return {rows + first * sample, weight};
  }
};

// `shift`: the number of the one that the pick calls 0.
template <class Number, class Index>
__device__ inline Pair<Number> pair_of(const PickIn<Index>& picked, std::int64_t shift) {
  if (picked.action == Action::missing) return {Pair<Number>::missing, 0, 0};
  if (picked.action == Action::fill) return {Pair<Number>::fill, 0, 0};
  const auto weight = static_cast<Number>(picked.weight);
  const bool blends = picked.action == Action::blend && weight != 0;
  const int first = static_cast<int>(picked.first) + static_cast<int>(shift);
  return {first, first + (blends ? 1 : 0), blends ? weight : -Number{0}};
}

// In one instruction.
template <class Number>
__device__ inline Pair<Number> load_pair(const Pair<Number>* from) {
  return __builtin_bit_cast(Pair<Number>, *reinterpret_cast<const int4*>(from));
}

// Makes the strip of `targets`, of an episode's `rows`, from `out` on. `plain`: all of them are
// made of rows. `reloads`: weights are looked up again, so that registers are for what is under
// way.
template <class Element, unsigned bytes, unsigned threads, unsigned at_once, bool reloads>
__device__ inline void make_strip(const Strip& strip, const Blank& blank,
                                  const Pair<NumberOf<Element>>* pairs, const unsigned char* rows,
                                  unsigned targets, unsigned char* out, bool plain,
                                  unsigned thread) {
  using Number = NumberOf<Element>;
  constexpr bool moves = std::is_same_v<Element, Moved>;

  // A few are under way at once: each time that all wait for memory counts. place(i, k): the target
  // of the k-th from i on, where it is in the first row of values, and where it goes. there(i, k):
  // whether there is one.
  const auto make = [&](unsigned i, const auto& place, const auto& there) {
    [[maybe_unused]] Vector<bytes> x[at_once], y[at_once];
    [[maybe_unused]] Number weight[at_once];
#pragma unroll
    for (unsigned k = 0; k < at_once; ++k) {
      const auto [target, from, to] = place(i, k);
      const Pair<Number> pair = load_pair(pairs + target);
      weight[k] = pair.weight;
      x[k] = load_global<bytes>(from + std::int64_t{pair.first} * strip.sample);
      if constexpr (!moves) {
        y[k] = load_global<bytes>(from + std::int64_t{pair.second} * strip.sample);
      }
    }
    if constexpr (reloads) asm volatile("" : "+r"(i)::"memory");  // what was known is forgotten
    [[maybe_unused]] bool finite = false;
    if constexpr (!moves) finite = all_finite<Element>(y);
#pragma unroll
    for (unsigned k = 0; k < at_once; ++k) {
      const auto [target, from, to] = place(i, k);
      if constexpr (!moves) {
        blend<Element>(x[k], y[k], reloads ? pairs[target].weight : weight[k], finite);
      }
      if (there(i, k)) store_global(to, x[k]);
    }
  };
  struct Place {
    unsigned target;
    const unsigned char* from;
    unsigned char* to;
  };

  if (plain && strip.abreast > 0) {
    const unsigned row = strip.by_vectors.divide(thread);
    if (row >= strip.abreast) return;
    const unsigned at = (thread - row * strip.vectors) * bytes;
    const unsigned char* from = rows + at;
    asm("" : "+l"(from));  // as it is: else it is put together again for every load
    const std::int64_t step = strip.abreast * strip.target;
    out += row * strip.target + at;
#pragma unroll 1
    for (unsigned begin = row; begin < targets; begin += at_once * strip.abreast) {
      make(
          begin,
          [&](unsigned i, unsigned k) {
            return Place{min(i + k * strip.abreast, targets - 1), from, out + k * step};
          },
          [&](unsigned i, unsigned k) { return i + k * strip.abreast < targets; });
      out += at_once * step;
    }
    return;
  }
  const unsigned all = targets * strip.vectors;
  const auto place = [&](unsigned i) {
    const unsigned target = strip.by_vectors.divide(i), at = (i - target * strip.vectors) * bytes;
    return Place{target, rows + at, out + target * strip.target + at};
  };
  if (plain) {
#pragma unroll 1
    for (unsigned begin = thread; begin < all; begin += at_once * threads) {
      make(
          begin, [&](unsigned i, unsigned k) { return place(min(i + k * threads, all - 1)); },
          [&](unsigned i, unsigned k) { return i + k * threads < all; });
    }
    return;
  }
#pragma unroll 1
  for (unsigned i = thread; i < all; i += threads) {
    const auto [target, from, to] = place(i);
    const auto source = pairs[target].source(from, strip.sample);
    store_global(to, vector_of<Element, bytes>(source, 0, strip.sample, blank));
  }
}

}  // namespace ps::resampling
