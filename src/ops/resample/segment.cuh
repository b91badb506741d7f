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
  kit::Divisor by_vectors{1};
  // Of what a warp makes at once for a block's targets, among all such; its vectors.
  unsigned begin = 0, end = 0, at_once;
  unsigned source = 0;  // of the block's first target, among all
  unsigned out;         // bytes from a row's first column
  std::int64_t sample;  // bytes from a sample to the next
  std::int64_t column;  // bytes from a sample's first column
  std::int64_t step;    // bytes from a vector to the next in a sample, or an element where apart
  std::uint8_t bytes;   // of a vector; of an element where columns are apart, and for slerp
  std::uint8_t piece;   // what may be stored at once, of a vector
  bool apart;           // columns that are not neighbours in a sample
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

// What a warp makes at once: some vectors of a segment.
template <class Number>
struct Unit {
  const MixedSegment& segment;
  const Blank& blank;
  const Source<Number>* sources;
  unsigned char* rows;
  unsigned pitch;
  unsigned first, all;  // the unit's, and all of the block's targets
  bool plain;           // all are made of rows

  struct Item {
    unsigned target, vector;  // of the row
    unsigned char* to;
  };
  __device__ Item item(unsigned i, unsigned bytes) const {
    const unsigned target = segment.by_vectors.divide(i), vector = i - target * segment.vectors;
    return {target, vector, rows + (target * pitch + segment.out + vector * bytes)};
  }
};

// Neighbours. A lane's vectors are under way at once; the last one again where there are no more.
template <class Element, unsigned least, unsigned bytes, class Number>
__device__ inline void make_vectors(const Unit<Number>& unit, unsigned lane) {
  constexpr bool moves = std::is_same_v<Element, Moved>;
  constexpr unsigned at_once = mixed_at_once;
  const MixedSegment& segment = unit.segment;
  const std::int64_t column = segment.column, sample = segment.sample;
  Vector<bytes> x[at_once], y[at_once];
  Number weight[at_once];
  unsigned char* to[at_once];
#pragma unroll
  for (unsigned k = 0; k < at_once; ++k) {
    const auto item = unit.item(min(unit.first + k * 32 + lane, unit.all - 1), bytes);
    const Source<Number> from = unit.sources[item.target];
    weight[k] = from.weight;
    to[k] = item.to;
    const unsigned char* const row = from.row + column + item.vector * bytes;
    x[k] = load_global<bytes>(row);
    if constexpr (!moves) y[k] = load_global<bytes>(row + from.later(sample));
  }
  if constexpr (!moves) {
    const bool finite = all_finite<Element>(y);
#pragma unroll
    for (unsigned k = 0; k < at_once; ++k) blend<Element>(x[k], y[k], weight[k], finite);
  }
  store_all<least>(to, x, segment.piece);
}

// One by one: where some have no row, and where columns are apart.
template <class Element, unsigned least, unsigned bytes, class Number>
__device__ inline void make_some(const Unit<Number>& unit, unsigned lane) {
  const MixedSegment& segment = unit.segment;
  const unsigned end = min(unit.first + segment.at_once, unit.all);
#pragma unroll 1
  for (unsigned i = unit.first + lane; i < end; i += 32) {
    const auto item = unit.item(i, bytes);
    const Vector<bytes> v[1] = {vector_of<Element, bytes>(
        unit.sources[item.target], segment.column + item.vector * segment.step, segment.sample,
        unit.blank)};
    unsigned char* const to[1] = {item.to};
    store_all<least>(to, v, segment.piece);
  }
}

// A quaternion each.
template <class Element, class Number>
__device__ inline void make_slerp(const Unit<Number>& unit, unsigned lane) {
  using A = Arithmetic<Element>;
  constexpr unsigned bytes = sizeof(Element);
  const MixedSegment& segment = unit.segment;
  if (unit.first + lane >= unit.all) return;
  const auto item = unit.item(unit.first + lane, 4 * bytes);
  const Source<Number> from = unit.sources[item.target];
  const std::int64_t at = segment.column + item.vector * 4 * segment.step;
  if (!from.is_row() || from.weight == 0) {
    for (unsigned i = 0; i < 4; ++i) {
      store(item.to + i * bytes,
            vector_of<Moved, bytes>(from, at + i * segment.step, segment.sample, unit.blank));
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
  for (int i = 0; i < 4; ++i) reinterpret_cast<Element*>(item.to)[i] = A::narrow(result[i]);
}

// `least`: bytes of an element; vectors have as many or more, and what is apart has these.
template <class Element, unsigned least, class Number>
__device__ inline void make_columns(const Unit<Number>& unit, unsigned lane) {
  const auto with = [&]<unsigned bytes>() {
    if constexpr (bytes >= least) {
      if (unit.plain && !unit.segment.apart) {
        return make_vectors<Element, least, bytes>(unit, lane);
      }
      make_some<Element, least, bytes>(unit, lane);
    }
  };
  switch (unit.segment.bytes) {
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
__device__ inline void make_unit(const Unit<Number>& unit, unsigned lane) {
  if constexpr (std::is_same_v<Element, Moved>) {
    make_columns<Moved, 1>(unit, lane);
  } else {
    constexpr unsigned least = sizeof(Element);
    const Interpolation mode = unit.segment.mode;
    if constexpr (turns) {
      if (mode == Interpolation::slerp) return make_slerp<Element>(unit, lane);
    }
    if (mode == Interpolation::linear) return make_columns<Element, least>(unit, lane);
    make_columns<Moved, least>(unit, lane);
  }
}

}  // namespace ps::resampling
