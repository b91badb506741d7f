// Moving: columns side by side, the same for every target, made of rows of values.
#pragma once

#include "ops/resample/element.cuh"
#include "ops/resample/gpu.cuh"

namespace ps::resampling {

// Strides are in bytes.
struct Strip {
  unsigned vectors = 0;  // of a row
  kit::Divisor by_vectors{1};
  std::int64_t sample = 0;  // from a row of values to the next
  std::int64_t target = 0;  // from a row of results to the next
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

// Makes the strip of `targets`, from `out` on. sources(i): what that of target i is made of.
// `plain`: all of them are made of rows.
template <class Element, unsigned bytes, unsigned threads, unsigned at_once, class Sources>
__device__ inline void make_strip(const Strip& strip, const Blank& blank, const Sources& sources,
                                  unsigned targets, unsigned char* out, bool plain,
                                  unsigned thread) {
  using Number = NumberOf<Element>;
  constexpr bool moves = std::is_same_v<Element, Moved>;
  const unsigned all = targets * strip.vectors, row = strip.vectors * bytes;
  // From one vector of a thread to its next: rows, and bytes of one.
  const unsigned step = strip.by_vectors.divide(threads);
  const unsigned rest = (threads - step * strip.vectors) * bytes;
  unsigned target = strip.by_vectors.divide(thread);
  unsigned at = (thread - target * strip.vectors) * bytes;
  const auto advance = [&] {
    const bool wraps = at + rest >= row;
    target += step + (wraps ? 1 : 0);
    at += rest - (wraps ? row : 0);
  };

  // A few vectors of a thread are under way at once, and so are its last ones: each time that all
  // wait for memory counts. Those that are not there are the last once more.
  const auto make = [&](unsigned there) {
    Vector<bytes> x[at_once], y[at_once];
    Number weight[at_once];
    unsigned char* to[at_once];
#pragma unroll
    for (unsigned k = 0; k < at_once; ++k) {
      const Source<Number> from = sources(target);
      weight[k] = from.weight;
      to[k] = out + target * strip.target + at;
      x[k] = load_global<bytes>(from.row + at);
      if constexpr (!moves) {
        y[k] = load_global<bytes>(from.row + from.later(strip.sample) + at);
      }
      if (k + 1 < there) advance();
    }
    if constexpr (!moves) blend<Element>(x, y, weight);
#pragma unroll
    for (unsigned k = 0; k < at_once; ++k) {
      if (k < there) store_global(to[k], x[k]);
    }
  };
  unsigned i = thread;
  if (plain) {
    for (; i + (at_once - 1) * threads < all; i += at_once * threads) {
      make(at_once);
      advance();
    }
    if (i < all) make((all - i + threads - 1) / threads);
    return;
  }
  for (; i < all; i += threads) {
    store_global(out + target * strip.target + at,
                 vector_of<Element, bytes>(sources(target), at, strip.sample, blank));
    advance();
  }
}

}  // namespace ps::resampling
