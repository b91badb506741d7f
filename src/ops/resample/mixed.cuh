// Any number of sensors, with any modes of their columns, in one pass over the results. A block has
// some targets of one episode. It fetches their times and those of every sensor's samples around
// the place where they may be; then a thread each finds the samples of one target in one sensor;
// then all threads make the row, neighbouring columns with one mode after the other.
#pragma once

#include "ops/resample/near.cuh"
#include "ops/resample/strip.cuh"

namespace ps::resampling {

// Configuration.
inline constexpr unsigned mixed_threads = 128;
inline constexpr unsigned mixed_resident = 6;    // blocks that fit on a multiprocessor at least
inline constexpr unsigned mixed_spots = 256;     // targets of a block times sensors, at most
inline constexpr unsigned mixed_vectors = 2048;  // of a block, about
template <class Time>
inline constexpr int mixed_window = 2048 / sizeof(Time);  // times at hand of a sensor

// Neighbouring columns with one mode.
struct MixedSegment {
  Strip strip;          // its vectors are quaternions for slerp
  std::int64_t column;  // bytes from a sample's first column
  std::int64_t step;    // bytes from a vector to the next in a sample, or an element where apart
  std::int64_t out;     // bytes from a row's first column
  std::uint8_t sensor;
  std::uint8_t bytes;  // of a vector; of an element where columns are apart, and for slerp
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
  unsigned sensors, segments;
  unsigned targets;  // of an episode
  unsigned tile;     // of a block; times `sensors` at most mixed_spots
  unsigned tiles;    // of an episode
  kit::Divisor by_tiles{1}, by_tile{1};
  float even;  // what even_place() wants
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
constexpr unsigned mixed_stride = mixed_window<Time> + 1;

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
  return {spot.earlier + segment.column + (later ? segment.strip.sample : 0),
          blends ? static_cast<Number>(spot.weight) : Number{0}};
}

template <class Element>
__device__ inline void slerp_strided(unsigned char* to, const unsigned char* x,
                                     const unsigned char* y, std::int64_t step,
                                     NumberOf<Element> weight) {
  using A = Arithmetic<Element>;
  NumberOf<Element> from[4], until[4], result[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    from[i] =
        Numbers<Element, sizeof(Element)>(load_global<sizeof(Element)>(x + i * step)).number[0];
    until[i] =
        Numbers<Element, sizeof(Element)>(load_global<sizeof(Element)>(y + i * step)).number[0];
  }
  slerp(from, until, weight, result);
#pragma unroll
  for (int i = 0; i < 4; ++i) reinterpret_cast<Element*>(to)[i] = A::narrow(result[i]);
}

// Quaternions, and columns that are apart, one by one. `parts`: 4 or 1.
template <class Element, unsigned bytes, class Sources>
__device__ inline void make_apart(const MixedSegment& segment, const Blank& blank,
                                  const Sources& sources, unsigned targets, unsigned char* out,
                                  unsigned parts) {
  using Number = NumberOf<Element>;
  const Strip& strip = segment.strip;
  for (unsigned i = threadIdx.x; i < targets * strip.vectors; i += mixed_threads) {
    const unsigned target = strip.by_vectors.divide(i), k = i - target * strip.vectors;
    unsigned char* const to = out + target * strip.target + k * parts * bytes;
    const Source<Number> from = sources(target);
    if (!from.is_row()) {
      const bool fills = from.row == Source<Number>::fill();
      for (unsigned p = 0; p < parts; ++p) {
        store(to + p * bytes, repeated<bytes>(fills ? blank.fill : blank.missing));
      }
      continue;
    }
    const unsigned char* const x = from.row + k * parts * segment.step;
    if constexpr (!std::is_same_v<Element, Moved>) {
      if (parts == 4 && from.weight != 0) {
        slerp_strided<Element>(to, x, x + strip.sample, segment.step, from.weight);
        continue;
      }
    }
    for (unsigned p = 0; p < parts; ++p) {
      Vector<bytes> v = load_global<bytes>(x + p * segment.step);
      if constexpr (!std::is_same_v<Element, Moved>) {
        if (from.weight != 0) {
          const auto y = load_global<bytes>(x + strip.sample + p * segment.step);
          v = blended_vector<Element>(v, y, from.weight);
        }
      }
      store(to + p * bytes, v);
    }
  }
}

// Makes one segment of all targets.
template <class Element, class Sources>
__device__ inline void make_segment(const MixedSegment& segment, const Blank& blank,
                                    const Sources& sources, unsigned targets, unsigned char* out,
                                    bool plain) {
  constexpr bool moves = std::is_same_v<Element, Moved>;
  constexpr unsigned size = moves ? 1 : sizeof(Element);
  const bool quaternions = segment.mode == Interpolation::slerp;
  const auto with = [&]<unsigned bytes>() {
    if constexpr (bytes >= size) {
      if constexpr (moves || bytes == size) {
        if (quaternions || segment.step != segment.bytes) {
          return make_apart<Element, bytes>(segment, blank, sources, targets, out,
                                            quaternions ? 4 : 1);
        }
      }
      make_strip<Element, bytes, mixed_threads, (bytes > 4 ? 2 : 4)>(
          segment.strip, blank, sources, targets, out, plain, threadIdx.x);
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

  // All threads make rows.
  unsigned char* const out = work.out + b * work.out_episode + begin * work.out_target;
  for (unsigned g = 0; g < work.segments; ++g) {
    const MixedSegment& segment = work.segment[g];
    const Spot* const spots = shared.spots + segment.sensor * work.tile;
    make_segment<Element>(
        segment, work.blank,
        [&](unsigned i) { return source_in<NumberOf<Element>>(segment, spots[i]); }, count,
        out + segment.out, plain);
  }
}

// Launch.
template <class Element, class Time>
cudaError_t launch_mixed(const MixedWork& work, std::int64_t episodes, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(episodes * work.tiles);
  const std::size_t near = std::size_t{work.sensors} * mixed_stride<Time> * sizeof(Time);
  mixed_kernel<Element, Time><<<blocks, mixed_threads, near, stream>>>(work);
  return cudaGetLastError();
}

}  // namespace ps::resampling
