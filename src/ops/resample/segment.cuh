// Making neighbouring columns with one mode, for the targets of a block: a warp makes some vectors
// of them at once, in shared memory, of what each target was found to make of the sensor.
#pragma once

#include "ops/resample/strip.cuh"

namespace ps::resampling {

// Vectors of a segment that a lane makes at once where they are neighbours; else there is one.
inline constexpr unsigned mixed_at_once = 4;

// Neighbouring columns with one mode.
struct MixedSegment {
  unsigned vectors;  // of a row; quaternions for slerp
  // A unit is what a warp makes at once: a part of a row's vectors side by side, of some rows
  // abreast, `at_once` times. A lane stays in its columns: it works out its place in a row once.
  unsigned abreast = 0, at_once;
  kit::Divisor by_width{1}, by_parts{1};  // vectors of a part, but the last; parts of a row
  unsigned begin = 0, end = 0;            // of its units for a block's targets, among all
  unsigned source = 0;                    // of the block's first target, among all
  unsigned out;                           // bytes from a row's first column
  std::int64_t sample;                    // bytes from a sample to the next
  std::int64_t column;                    // bytes from a sample's first column
  std::int64_t step;   // bytes from a vector to the next in a sample, or an element where apart
  std::uint8_t bytes;  // of a vector; of an element where columns are apart, and for slerp
  std::uint8_t piece;  // what may be stored at once, of a vector
  bool apart;          // columns that are not neighbours in a sample
  Interpolation mode;
};

// In pieces, where a vector's place does not suit it.
template <class Piece, unsigned bytes>
__device__ inline void store_pieces(unsigned char* to, const Vector<bytes>& v) {
  if constexpr (sizeof(Piece) < bytes) {
    constexpr unsigned of_word = sizeof(v.word[0]) / sizeof(Piece);
#pragma unroll
    for (unsigned i = 0; i < bytes / sizeof(Piece); ++i) {
      reinterpret_cast<Piece*>(to)[i] =
          static_cast<Piece>(v.word[i / of_word] >> 8 * sizeof(Piece) * (i % of_word));
    }
  }
}
// `least`: bytes of an element, at which all begin.
template <unsigned least, unsigned bytes, unsigned count>
__device__ inline void store_all(unsigned char* const (&to)[count], const Vector<bytes> (&v)[count],
                                 unsigned piece) {
  const auto pieces = [&]<class Piece>(Piece) {
#pragma unroll
    for (unsigned k = 0; k < count; ++k) store_pieces<Piece>(to[k], v[k]);
  };
  if (piece >= bytes) {
#pragma unroll
    for (unsigned k = 0; k < count; ++k) store(to[k], v[k]);
  } else if (least >= 4 || piece >= 4) {
    pieces(std::uint32_t{});
  } else if constexpr (least < 4) {
    if (least == 2 || piece == 2) {
      pieces(std::uint16_t{});
    } else if constexpr (least < 2) {
      pieces(std::uint8_t{});
    }
  }
}

// What a lane makes of a unit: a vector of some rows.
template <class Number>
struct Share {
  const MixedSegment& segment;
  const Blank& blank;
  const Source<Number>* sources;
  unsigned char* rows;
  unsigned pitch;
  unsigned target, targets;  // the first, and the block's
  unsigned vector;           // of the row
  bool plain;                // all are made of rows

  __device__ unsigned char* to(unsigned of_target, unsigned bytes) const {
    return rows + (of_target * pitch + segment.out + vector * bytes);
  }
};

// Neighbours. A lane's vectors are under way at once; the last one again where there are no more.
template <class Element, unsigned least, unsigned bytes, class Number>
__device__ inline void make_vectors(const Share<Number>& share) {
  constexpr bool moves = std::is_same_v<Element, Moved>;
  constexpr unsigned at_once = mixed_at_once;
  const MixedSegment& segment = share.segment;
  const std::int64_t at = segment.column + share.vector * bytes;
  Vector<bytes> x[at_once], y[at_once];
  unsigned first = share.target;
  const auto target = [&](unsigned k) {
    return min(first + k * segment.abreast, share.targets - 1);
  };
#pragma unroll
  for (unsigned k = 0; k < at_once; ++k) {
    const Source<Number> from = share.sources[target(k)];
    x[k] = load_global<bytes>(from.row + at);
    if constexpr (!moves) y[k] = load_global<bytes>(from.row + at + from.later(segment.sample));
  }
  // Weights are looked up again: registers are for what is under way.
  asm volatile("" : "+r"(first)::"memory");
  if constexpr (!moves) {
    const bool finite = all_finite<Element>(y);
#pragma unroll
    for (unsigned k = 0; k < at_once; ++k) {
      blend<Element>(x[k], y[k], share.sources[target(k)].weight, finite);
    }
  }
  unsigned char* to[at_once];
#pragma unroll
  for (unsigned k = 0; k < at_once; ++k) to[k] = share.to(target(k), bytes);
  store_all<least>(to, x, segment.piece);
}

// One by one: where some have no row, and where columns are apart.
template <class Element, unsigned least, unsigned bytes, class Number>
__device__ inline void make_some(const Share<Number>& share) {
  const MixedSegment& segment = share.segment;
  const std::int64_t at = segment.column + share.vector * segment.step;
  const unsigned end = min(share.target + segment.at_once * segment.abreast, share.targets);
#pragma unroll 1
  for (unsigned target = share.target; target < end; target += segment.abreast) {
    const Vector<bytes> v[1] = {
        vector_of<Element, bytes>(share.sources[target], at, segment.sample, share.blank)};
    unsigned char* const to[1] = {share.to(target, bytes)};
    store_all<least>(to, v, segment.piece);
  }
}

// A quaternion each.
template <class Element, class Number>
__device__ inline void make_slerp(const Share<Number>& share) {
  using A = Arithmetic<Element>;
  constexpr unsigned bytes = sizeof(Element);
  const MixedSegment& segment = share.segment;
  const Source<Number> from = share.sources[share.target];
  const std::int64_t at = segment.column + share.vector * 4 * segment.step;
  unsigned char* const to = share.to(share.target, 4 * bytes);
  if (!from.is_row() || from.weight == 0) {
    for (unsigned i = 0; i < 4; ++i) {
      store(to + i * bytes,
            vector_of<Moved, bytes>(from, at + i * segment.step, segment.sample, share.blank));
    }
    return;
  }
  const unsigned char* const row = from.row + at;
  Number x[4], y[4], result[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const unsigned char* const place = row + i * segment.step;
    x[i] = A::widen(*reinterpret_cast<const Element*>(place));
    y[i] = A::widen(*reinterpret_cast<const Element*>(place + segment.sample));
  }
  slerp(x, y, from.weight, result);
#pragma unroll
  for (int i = 0; i < 4; ++i) reinterpret_cast<Element*>(to)[i] = A::narrow(result[i]);
}

// `least`: bytes of an element; vectors have as many or more, and what is apart has these.
template <class Element, unsigned least, class Number>
__device__ inline void make_columns(const Share<Number>& share) {
  const auto with = [&]<unsigned bytes>() {
    if constexpr (bytes >= least) {
      if (share.plain && !share.segment.apart) {
        return make_vectors<Element, least, bytes>(share);
      }
      make_some<Element, least, bytes>(share);
    }
  };
  switch (share.segment.bytes) {
    case 16:
      return with.template operator()<16>();
    case 8:
      return with.template operator()<8>();
    case 4:
      return with.template operator()<4>();
    case 2:
      return with.template operator()<2>();
    default:
      return with.template operator()<1>();
  }
}

template <class Element, bool turns, class Number>
__device__ inline void make_share(const Share<Number>& share) {
  if constexpr (std::is_same_v<Element, Moved>) {
    make_columns<Moved, 1>(share);
  } else {
    constexpr unsigned least = sizeof(Element);
    const Interpolation mode = share.segment.mode;
    if constexpr (turns) {
      if (mode == Interpolation::slerp) return make_slerp<Element>(share);
    }
    if (mode == Interpolation::linear) return make_columns<Element, least>(share);
    make_columns<Moved, least>(share);
  }
}

}  // namespace ps::resampling
