// Any number of sensors, with any modes of their columns, in one pass over the results. A block has
// some targets of one episode. It fetches their times and those of every sensor's samples around
// the place where they may be; then a thread each finds the samples of one target in one sensor;
// then its warps make the rows, a piece of neighbouring columns with one mode after the other. Rows
// rarely end where a vector does: they are put together in shared memory, and leave it in one
// piece.
#pragma once

#include "ops/resample/near.cuh"
#include "ops/resample/strip.cuh"

namespace ps::resampling {

// Configuration.
inline constexpr unsigned mixed_threads = 128;
inline constexpr unsigned mixed_resident = 6;      // blocks that fit on a multiprocessor at least
inline constexpr unsigned mixed_spots = 128;       // targets of a block times sensors, at most
inline constexpr unsigned mixed_rows = 12 * 1024;  // bytes of a block's rows in shared memory
template <class Time>
inline constexpr int mixed_window = 2048 / sizeof(Time);  // times at hand of a sensor
// Vectors of a segment that a lane has under way; one of what is made element by element.
__host__ __device__ constexpr unsigned mixed_at_once(unsigned bytes, bool apart) {
  return apart ? 1 : bytes > 4 ? 2 : 4;
}

// Neighbouring columns with one mode.
struct MixedSegment {
  unsigned vectors;  // of a row; quaternions for slerp
  kit::Divisor by_vectors{1};
  unsigned units;       // what a warp makes at once: of this segment and those before it
  std::int64_t sample;  // bytes from a sample to the next
  std::int64_t column;  // bytes from a sample's first column
  std::int64_t step;    // bytes from a vector to the next in a sample, or an element where apart
  std::int64_t out;     // bytes from a row's first column
  std::uint8_t sensor;
  std::uint8_t bytes;  // of a vector; of an element where columns are apart, and for slerp
  std::uint8_t piece;  // what may be stored at once, of a vector
  bool apart;          // columns that are not neighbours in a sample
  Interpolation mode;
};

struct MixedSensor {
  detail::SensorWork sensor;  // strides of values are in bytes
  int margin;                 // times before and behind the place where a target's may be
  unsigned modes;             // a bit for each that its columns have
};

// Strides of results are in bytes.
struct MixedWork {
  MixedSensor sensor[detail::max_sensors];
  MixedSegment segment[detail::max_segments];
  const void* at;
  std::int64_t at_episode, at_target;
  unsigned char* out;
  std::int64_t out_episode, out_target;
  bool* valid;
  std::int64_t valid_episode, valid_target, valid_sensor;
  Blank blank;
  unsigned sensors;
  unsigned units;    // of all segments, for all targets of a block
  unsigned targets;  // of an episode
  unsigned tile;     // of a block; times `sensors` at most mixed_spots
  unsigned tiles;    // of an episode
  kit::Divisor by_tiles{1}, by_tile{1};
  float even;     // what even_place() wants
  unsigned rows;  // bytes that shared memory has for a block's rows; 0: they go where they belong
  Outside outside;
};

// What a target makes of a sensor.
struct Spot {
  const unsigned char* earlier;  // row of the first of its two samples
  double weight;
  Action action;       // copy: of one of the two, where it is no blend
  bool blends;         // in linear mode and slerp
  std::uint8_t later;  // a bit for each mode that copies the second
};

// Shared storage. Behind it lie the times of each sensor.
template <class Time>
struct MixedStorage {
  struct Place {  // of an episode
    const Time* times;
    std::int64_t samples;
    const unsigned char* rows;
    int low, count;  // of the times at hand
  };
  Spot spots[mixed_spots];
  Place places[detail::max_sensors];
  Time wanted[mixed_spots];
};
template <class Time>
constexpr unsigned mixed_stride = mixed_window<Time> + 16 / sizeof(Time);  // rows begin at 16 bytes

template <class Time>
__device__ inline Spot spot_of(const MixedSensor& sensor,
                               const typename MixedStorage<Time>::Place& place,
                               const Near<Time>& near, Time wanted, std::int64_t hint,
                               Outside outside, bool& valid) {
  Times<Time> times;
  std::int64_t shift = 0;
  Located at;
  look(Times<Time>{place.times, sensor.sensor.time_sample, place.samples}, near, wanted, hint,
       outside == Outside::extrapolate, [&](const auto& in, int before, const auto& found) {
         times = {in.first, in.stride, in.count};
         shift = before;
         at = {found.where, found.earlier, found.later};
       });
  valid = at.where == Where::within;
  Spot spot{place.rows + (shift + at.earlier) * sensor.sensor.value_sample, 0, Action::missing,
            false, 0};
  constexpr unsigned slerp = 1U << static_cast<unsigned>(Interpolation::slerp);
  const auto used = [&](Interpolation mode) {
    return (sensor.modes >> static_cast<unsigned>(mode) & 1U) != 0;
  };
  // What there is of them is the same in every mode but for which is copied.
  constexpr Interpolation modes[] = {Interpolation::linear, Interpolation::nearest,
                                     Interpolation::previous, Interpolation::next};
#pragma unroll
  for (const Interpolation mode : modes) {
    const bool line = mode == Interpolation::linear;
    if (!used(mode) && !(line && (sensor.modes & slerp) != 0)) continue;
    const Pick picked = pick(at, times, wanted, mode, outside);
    const bool blends = picked.action == Action::blend;
    spot.action = blends ? Action::copy : picked.action;
    if (line) {
      spot.blends = blends;
      spot.weight = picked.weight;
    }
    if (picked.first != at.earlier) {
      spot.later = static_cast<std::uint8_t>(spot.later | 1U << static_cast<unsigned>(mode));
    }
  }
  return spot;
}

// The row of values that a segment is made of.
template <class Number>
__device__ inline Source<Number> source_in(const MixedSegment& segment, const Spot& spot) {
  if (spot.action == Action::missing) return {Source<Number>::missing(), 0};
  if (spot.action == Action::fill) return {Source<Number>::fill(), 0};
  const bool quaternions = segment.mode == Interpolation::slerp;
  const Interpolation mode = quaternions ? Interpolation::linear : segment.mode;
  const bool later = (spot.later >> static_cast<unsigned>(mode) & 1U) != 0;
  const bool blends = mode == Interpolation::linear && spot.blends;
  return {spot.earlier + segment.column + (later ? segment.sample : 0),
          blends ? static_cast<Number>(spot.weight) : Number{0}};
}

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
template <unsigned bytes>
__device__ inline void store_in(unsigned char* to, const Vector<bytes>& v, unsigned piece) {
  if (piece >= bytes) return store(to, v);
  if (piece >= 4) return store_pieces<std::uint32_t>(to, v);
  if (piece == 2) return store_pieces<std::uint16_t>(to, v);
  store_pieces<std::uint8_t>(to, v);
}

// Where a block's rows go, in shared memory or not.
struct Rows {
  unsigned char* first;
  std::int64_t stride;
};

// What all of a unit have in common.
template <class Number>
struct Unit {
  const MixedSegment& segment;
  const Blank& blank;
  const Spot* spots;
  Rows rows;
  unsigned first, all;  // of the segment's vectors, and how many there are of the block's targets
  bool plain;           // all are made of rows

  struct Item {
    Source<Number> from;
    unsigned vector;  // of the row
    unsigned char* to;
  };
  __device__ Item item(unsigned i, unsigned bytes) const {
    const unsigned target = segment.by_vectors.divide(i), vector = i - target * segment.vectors;
    return {source_in<Number>(segment, spots[target]), vector,
            rows.first + target * rows.stride + segment.out + vector * bytes};
  }
  __device__ std::uint64_t blank_of(const Source<Number>& from) const {
    return from.row == Source<Number>::fill() ? blank.fill : blank.missing;
  }
};

// Neighbours. A few of a lane's vectors are under way at once; the last one again where there are
// no more.
template <class Element, unsigned bytes>
__device__ inline void make_vectors(const Unit<NumberOf<Element>>& unit, unsigned lane) {
  constexpr bool moves = std::is_same_v<Element, Moved>;
  constexpr unsigned at_once = mixed_at_once(bytes, false);
  const MixedSegment& segment = unit.segment;
  Vector<bytes> x[at_once], y[at_once];
  NumberOf<Element> weight[at_once];
  unsigned char* to[at_once];
#pragma unroll
  for (unsigned k = 0; k < at_once; ++k) {
    const auto item = unit.item(min(unit.first + k * 32 + lane, unit.all - 1), bytes);
    weight[k] = item.from.weight;
    to[k] = item.to;
    if (unit.plain || item.from.is_row()) {
      const unsigned char* const row = item.from.row + item.vector * bytes;
      x[k] = load_global<bytes>(row);
      if constexpr (!moves) y[k] = load_global<bytes>(row + (weight[k] != 0 ? segment.sample : 0));
    } else {
      x[k] = repeated<bytes>(unit.blank_of(item.from));
      y[k] = x[k];
    }
  }
#pragma unroll
  for (unsigned k = 0; k < at_once; ++k) {
    if constexpr (!moves) {
      const Vector<bytes> blend = blended_vector<Element>(x[k], y[k], weight[k]);
      x[k] = weight[k] != 0 ? blend : x[k];
    }
    store_in(to[k], x[k], segment.piece);
  }
}

// Columns that are apart, one by one.
template <class Element, unsigned bytes>
__device__ inline void make_apart(const Unit<NumberOf<Element>>& unit, unsigned lane) {
  const MixedSegment& segment = unit.segment;
  if (unit.first + lane >= unit.all) return;
  const auto item = unit.item(unit.first + lane, bytes);
  Vector<bytes> v = repeated<bytes>(unit.blank_of(item.from));
  if (item.from.is_row()) {
    const unsigned char* const row = item.from.row + item.vector * segment.step;
    v = load_global<bytes>(row);
    if constexpr (!std::is_same_v<Element, Moved>) {
      if (item.from.weight != 0) {
        v = blended_vector<Element>(v, load_global<bytes>(row + segment.sample), item.from.weight);
      }
    }
  }
  store(item.to, v);
}

// A quaternion each.
template <class Element>
__device__ inline void make_slerp(const Unit<NumberOf<Element>>& unit, unsigned lane) {
  using A = Arithmetic<Element>;
  constexpr unsigned bytes = sizeof(Element);
  const MixedSegment& segment = unit.segment;
  if (unit.first + lane >= unit.all) return;
  const auto item = unit.item(unit.first + lane, 4 * bytes);
  auto* const to = reinterpret_cast<Element*>(item.to);
  if (!item.from.is_row()) {
    const auto none = repeated<bytes>(unit.blank_of(item.from));
    for (unsigned i = 0; i < 4; ++i) store(item.to + i * bytes, none);
    return;
  }
  const unsigned char* const x = item.from.row + item.vector * 4 * segment.step;
  Element from[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    from[i] = *reinterpret_cast<const Element*>(x + i * segment.step);
  }
  if (item.from.weight != 0) {
    NumberOf<Element> a[4], b[4], result[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      a[i] = A::widen(from[i]);
      b[i] = A::widen(*reinterpret_cast<const Element*>(x + segment.sample + i * segment.step));
    }
    slerp(a, b, item.from.weight, result);
#pragma unroll
    for (int i = 0; i < 4; ++i) from[i] = A::narrow(result[i]);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) to[i] = from[i];
}

template <class Element>
__device__ inline void make_unit(const Unit<NumberOf<Element>>& unit, unsigned lane) {
  constexpr bool moves = std::is_same_v<Element, Moved>;
  constexpr unsigned size = moves ? 1 : sizeof(Element);
  const MixedSegment& segment = unit.segment;
  if constexpr (!moves) {
    if (segment.mode == Interpolation::slerp) return make_slerp<Element>(unit, lane);
  }
  const auto with = [&]<unsigned bytes>() {
    if constexpr (bytes >= size) {
      if constexpr (moves || bytes == size) {
        if (segment.apart) return make_apart<Element, bytes>(unit, lane);
      }
      make_vectors<Element, bytes>(unit, lane);
    }
  };
  switch (segment.bytes) {
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

// Takes a block's rows from shared memory, where they lie as far from 16 bytes as where they go.
__device__ inline void send_rows(const unsigned char* from, unsigned char* to, unsigned bytes) {
  const auto past = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(to) % 16);
  const unsigned head = min((16 - past) % 16, bytes), vectors = (bytes - head) / 16;
  for (unsigned i = threadIdx.x; i < vectors; i += mixed_threads) {
    store_global(to + head + i * 16, load<16>(from + head + i * 16));
  }
  const unsigned tail = head + vectors * 16;
  if (threadIdx.x < head) to[threadIdx.x] = from[threadIdx.x];
  if (tail + threadIdx.x < bytes) to[tail + threadIdx.x] = from[tail + threadIdx.x];
}

template <class Element, class Time>
__global__ void __launch_bounds__(mixed_threads, mixed_resident)
    mixed_kernel(const __grid_constant__ MixedWork work) {
  __shared__ MixedStorage<Time> shared;
  extern __shared__ __align__(16) unsigned char behind[];
  auto* const times_near = reinterpret_cast<Time*>(behind);

  // Setup: which targets, and where their samples may be.
  const unsigned b = work.by_tiles.divide(blockIdx.x);
  const unsigned begin = (blockIdx.x - b * work.tiles) * work.tile;
  const unsigned count = min(work.tile, work.targets - begin);
  for (unsigned i = threadIdx.x; i < count; i += mixed_threads) {
    kit::cp_async<sizeof(Time)>(
        &shared.wanted[i],
        static_cast<const Time*>(work.at) + b * work.at_episode + (begin + i) * work.at_target);
  }
  for (unsigned s = 0; s < work.sensors; ++s) {
    const MixedSensor& sensor = work.sensor[s];
    bool wrong = false;
    const DeviceEpisode episode = device_episode(sensor.sensor, b, wrong);
    const Times<Time> times = device_times<Time>(sensor.sensor, b, episode);
    // None at hand of so many that places may take more than an int.
    const bool many = times.count > most_samples;
    const auto all = static_cast<int>(many ? most_samples : times.count);
    const int from = even_place(work.even, begin, all);
    const int until = min(even_place(work.even, begin + count - 1, all) + 2, all);
    const int low = many ? 1 : max(from - sensor.margin, 0);
    const int high = many ? 1 : min(until + sensor.margin, all);
    const Near<Time> near =
        fetch_near<mixed_threads>(times_near + s * mixed_stride<Time>, times, low,
                                  min(high - low, mixed_window<Time>), threadIdx.x);
    if (threadIdx.x == 0) {
      shared.places[s] = {times.first, times.count,
                          static_cast<const unsigned char*>(sensor.sensor.values) +
                              b * sensor.sensor.value_episode +
                              episode.begin * sensor.sensor.value_sample,
                          near.low, near.count};
    }
  }
  kit::cp_async_commit();
  kit::cp_async_wait<0>();
  __syncthreads();

  // A thread finds one target's samples of one sensor.
  bool special = false;
  for (unsigned j = threadIdx.x; j < work.tile * work.sensors; j += mixed_threads) {
    const unsigned s = work.by_tile.divide(j), i = j - s * work.tile;
    if (i >= count) continue;
    bool valid = false;
    const auto& place = shared.places[s];
    const Near<Time> near{times_near + s * mixed_stride<Time>, place.low, place.count};
    const Spot spot =
        spot_of<Time>(work.sensor[s], place, near, shared.wanted[i],
                      even_place(work.even, begin + i, place.samples), work.outside, valid);
    shared.spots[j] = spot;
    special |= spot.action != Action::copy && work.sensor[s].modes != 0;
    if (work.valid != nullptr) {
      work.valid[b * work.valid_episode + (begin + i) * work.valid_target + s * work.valid_sensor] =
          valid;
    }
  }
  const bool plain = __syncthreads_or(static_cast<int>(special)) == 0;

  // Warps make rows.
  unsigned char* const out = work.out + b * work.out_episode + begin * work.out_target;
  unsigned char* const near_rows = behind + work.sensors * mixed_stride<Time> * sizeof(Time);
  const bool here = work.rows > 0;
  const Rows rows{here ? near_rows + reinterpret_cast<std::uintptr_t>(out) % 16 : out,
                  work.out_target};
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (unsigned u = warp, g = 0; u < work.units; u += mixed_threads / 32) {
    while (u >= work.segment[g].units) ++g;
    const MixedSegment& segment = work.segment[g];
    const unsigned before = g > 0 ? work.segment[g - 1].units : 0;
    const bool one_by_one = segment.apart || segment.mode == Interpolation::slerp;
    const Unit<NumberOf<Element>> unit{segment,
                                       work.blank,
                                       shared.spots + segment.sensor * work.tile,
                                       rows,
                                       (u - before) * 32 * mixed_at_once(segment.bytes, one_by_one),
                                       count * segment.vectors,
                                       plain};
    if (unit.first < unit.all) make_unit<Element>(unit, lane);
  }
  if (!here) return;
  __syncthreads();
  send_rows(rows.first, out, count * static_cast<unsigned>(work.out_target));
}

// Launch.
template <class Element, class Time>
cudaError_t launch_mixed(const MixedWork& work, std::int64_t episodes, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(episodes * work.tiles);
  const std::size_t near = std::size_t{work.sensors} * mixed_stride<Time> * sizeof(Time);
  mixed_kernel<Element, Time><<<blocks, mixed_threads, near + work.rows, stream>>>(work);
  return cudaGetLastError();
}

}  // namespace ps::resampling
