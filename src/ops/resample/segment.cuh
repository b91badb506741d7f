// Making neighbouring columns with one mode, for the targets of a block: a warp makes some vectors
// of them at once, in shared memory, of what each target was found to make of the sensor.
#pragma once

#include "ops/resample/strip.cuh"

namespace ps::resampling {

// Vectors of a segment that a lane makes at once, or elements and quaternions.
__host__ __device__ constexpr unsigned mixed_at_once(bool one_by_one) { return one_by_one ? 1 : 4; }

// Neighbouring columns with one mode.
struct MixedSegment {
  unsigned vectors;  // of a row; quaternions for slerp
  kit::Divisor by_vectors{1};
  unsigned units;       // of what a warp makes at once, for all targets of a block
  unsigned out;         // bytes from a row's first column
  std::int64_t sample;  // bytes from a sample to the next
  std::int64_t column;  // bytes from a sample's first column
  std::int64_t step;    // bytes from a vector to the next in a sample, or an element where apart
  std::uint8_t sensor;
  std::uint8_t bytes;  // of a vector; of an element where columns are apart, and for slerp
  std::uint8_t piece;  // what may be stored at once, of a vector
  bool apart;          // columns that are not neighbours in a sample
  Interpolation mode;

  __host__ __device__ bool one_by_one() const { return apart || mode == Interpolation::slerp; }
};

// What a target makes of a sensor: of its columns in linear mode and slerp what a row's source is,
// of all others one of two neighbouring samples, or nothing.
struct alignas(16) Spot {
  Source<double> line;
  const unsigned char* earlier;  // row of the first of the two
  Action action;                 // copy: of one of them
  std::uint8_t later;            // a bit for each mode that copies the second
};

__host__ __device__ constexpr unsigned bit_of(Interpolation mode) {
  return 1U << static_cast<unsigned>(mode);
}
inline constexpr unsigned line_modes = bit_of(Interpolation::linear) | bit_of(Interpolation::slerp);

// The rows of values that a segment is made of. `plain`: there is one of every target.
template <class Number>
struct Lines {
  template <bool plain>
  static __device__ Source<Number> of(const MixedSegment& segment, const Spot& spot) {
    const Source<double> from = spot.line;
    const bool row = plain || from.is_row();
    return {from.row + (row ? segment.column : 0), static_cast<Number>(from.weight)};
  }
};
struct Copies {
  template <bool plain>
  static __device__ Source<float> of(const MixedSegment& segment, const Spot& spot) {
    if (!plain && spot.action == Action::missing) return {Source<float>::missing(), 0};
    if (!plain && spot.action == Action::fill) return {Source<float>::fill(), 0};
    const bool later = (spot.later & bit_of(segment.mode)) != 0;
    return {spot.earlier + segment.column + (later ? segment.sample : 0), 0};
  }
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
struct Unit {
  const MixedSegment& segment;
  const Blank& blank;
  const Spot* spots;
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
  template <class Number>
  __device__ std::uint64_t blank_of(const Source<Number>& from) const {
    return from.row == Source<Number>::fill() ? blank.fill : blank.missing;
  }
};

// Neighbours. A lane's vectors are under way at once; the last one again where there are no more.
template <class Element, class Sources, unsigned least, unsigned bytes>
__device__ inline void make_vectors(const Unit& unit, unsigned lane) {
  constexpr bool moves = std::is_same_v<Element, Moved>;
  constexpr unsigned at_once = mixed_at_once(false);
  const MixedSegment& segment = unit.segment;
  Vector<bytes> x[at_once], y[at_once];
  NumberOf<Element> weight[at_once];
  unsigned char* to[at_once];
#pragma unroll
  for (unsigned k = 0; k < at_once; ++k) {
    const auto item = unit.item(min(unit.first + k * 32 + lane, unit.all - 1), bytes);
    const auto from = Sources::template of<true>(segment, unit.spots[item.target]);
    weight[k] = from.weight;
    to[k] = item.to;
    const unsigned char* const row = from.row + item.vector * bytes;
    x[k] = load_global<bytes>(row);
    if constexpr (!moves) y[k] = load_global<bytes>(row + (weight[k] != 0 ? segment.sample : 0));
  }
  if constexpr (!moves) {
#pragma unroll
    for (unsigned k = 0; k < at_once; ++k) {
      const Vector<bytes> blend = blended_vector<Element>(x[k], y[k], weight[k]);
      x[k] = weight[k] != 0 ? blend : x[k];
    }
  }
  store_all<least>(to, x, segment.piece);
}

// The same where some have no row.
template <class Element, class Sources, unsigned least, unsigned bytes>
__device__ inline void make_some(const Unit& unit, unsigned lane) {
  const MixedSegment& segment = unit.segment;
  const unsigned end = min(unit.first + 32 * mixed_at_once(false), unit.all);
#pragma unroll 1
  for (unsigned i = unit.first + lane; i < end; i += 32) {
    const auto item = unit.item(i, bytes);
    const auto from = Sources::template of<false>(segment, unit.spots[item.target]);
    Vector<bytes> v[1] = {repeated<bytes>(unit.blank_of(from))};
    if (from.is_row()) {
      const unsigned char* const row = from.row + item.vector * bytes;
      v[0] = load_global<bytes>(row);
      if constexpr (!std::is_same_v<Element, Moved>) {
        if (from.weight != 0) {
          const auto y = load_global<bytes>(row + segment.sample);
          v[0] = blended_vector<Element>(v[0], y, from.weight);
        }
      }
    }
    unsigned char* const to[1] = {item.to};
    store_all<least>(to, v, segment.piece);
  }
}

// Columns that are apart, one by one.
template <class Element, class Sources, unsigned bytes>
__device__ inline void make_apart(const Unit& unit, unsigned lane) {
  const MixedSegment& segment = unit.segment;
  if (unit.first + lane >= unit.all) return;
  const auto item = unit.item(unit.first + lane, bytes);
  const auto from = Sources::template of<false>(segment, unit.spots[item.target]);
  Vector<bytes> v = repeated<bytes>(unit.blank_of(from));
  if (from.is_row()) {
    const unsigned char* const row = from.row + item.vector * segment.step;
    v = load_global<bytes>(row);
    if constexpr (!std::is_same_v<Element, Moved>) {
      if (from.weight != 0) {
        v = blended_vector<Element>(v, load_global<bytes>(row + segment.sample), from.weight);
      }
    }
  }
  store(item.to, v);
}

// A quaternion each.
template <class Element>
__device__ inline void make_slerp(const Unit& unit, unsigned lane) {
  using A = Arithmetic<Element>;
  constexpr unsigned bytes = sizeof(Element);
  const MixedSegment& segment = unit.segment;
  if (unit.first + lane >= unit.all) return;
  const auto item = unit.item(unit.first + lane, 4 * bytes);
  const auto source =
      Lines<NumberOf<Element>>::template of<false>(segment, unit.spots[item.target]);
  if (!source.is_row()) {
    const auto none = repeated<bytes>(unit.blank_of(source));
    for (unsigned i = 0; i < 4; ++i) store(item.to + i * bytes, none);
    return;
  }
  const unsigned char* const x = source.row + item.vector * 4 * segment.step;
  Element from[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) from[i] = *reinterpret_cast<const Element*>(x + i * segment.step);
  if (source.weight != 0) {
    NumberOf<Element> a[4], b[4], result[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      a[i] = A::widen(from[i]);
      b[i] = A::widen(*reinterpret_cast<const Element*>(x + segment.sample + i * segment.step));
    }
    slerp(a, b, source.weight, result);
#pragma unroll
    for (int i = 0; i < 4; ++i) from[i] = A::narrow(result[i]);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) reinterpret_cast<Element*>(item.to)[i] = from[i];
}

// `least`: bytes of an element; vectors have as many or more, and what is apart has these.
template <class Element, class Sources, unsigned least>
__device__ inline void make_columns(const Unit& unit, unsigned lane) {
  const auto with = [&]<unsigned bytes>() {
    if constexpr (bytes >= least) {
      if constexpr (least == 1 || bytes == least) {
        if (unit.segment.apart) return make_apart<Element, Sources, bytes>(unit, lane);
      }
      if (unit.plain) return make_vectors<Element, Sources, least, bytes>(unit, lane);
      make_some<Element, Sources, least, bytes>(unit, lane);
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

template <class Element, bool turns>
__device__ inline void make_unit(const Unit& unit, unsigned lane) {
  if constexpr (std::is_same_v<Element, Moved>) {
    make_columns<Moved, Copies, 1>(unit, lane);
  } else {
    constexpr unsigned least = sizeof(Element);
    const Interpolation mode = unit.segment.mode;
    if constexpr (turns) {
      if (mode == Interpolation::slerp) return make_slerp<Element>(unit, lane);
    }
    if (mode == Interpolation::linear) {
      return make_columns<Element, Lines<NumberOf<Element>>, least>(unit, lane);
    }
    make_columns<Moved, Copies, least>(unit, lane);
  }
}

}  // namespace ps::resampling
