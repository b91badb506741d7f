// Any number of sensors, with any modes of their columns, in one pass over the results. A block has
// some targets of one episode: first a thread each finds the samples of one target in one sensor,
// then all threads make the row's units, each a vector of columns or one quaternion.
#pragma once

#include "ops/resample/element.cuh"
#include "ops/resample/gpu.cuh"

namespace ps::resampling {

// Configuration.
inline constexpr unsigned mixed_threads = 128;

// Neighbouring columns with one mode, cut into units.
struct MixedSegment {
  unsigned begin = 0;  // of its units in the row
  std::uint8_t sensor = 0;
  Interpolation mode = Interpolation::linear;
  std::uint8_t bytes = 0;   // of a unit; of an element where columns are apart, and for slerp
  std::int64_t column = 0;  // bytes from a sample's first column
  std::int64_t step = 0;    // bytes from a unit to the next in a sample
  std::int64_t out = 0;     // bytes from a row's first column
};

// Strides of values and results are in bytes.
struct MixedWork {
  detail::SensorWork sensor[detail::max_sensors];
  MixedSegment segment[detail::max_segments];
  const void* at;
  std::int64_t at_episode, at_target;
  unsigned char* out;
  std::int64_t out_episode, out_target;
  bool* valid;
  std::int64_t valid_episode, valid_target, valid_sensor;
  std::uint64_t fill, missing;  // bits of an element, filling 8 bytes
  unsigned sensors, segments;
  unsigned targets;  // of an episode
  unsigned tile;     // of a block; times `sensors` at most as many as it has threads
  unsigned tiles;    // of an episode
  unsigned units;    // of a row
  kit::Divisor by_tiles{1}, by_tile{1}, by_units{1};
  float even;  // what even_place() wants
  Outside outside;
};

// What a target makes of a sensor.
struct Spot {
  const unsigned char* earlier = nullptr;  // row of the first of its two samples
  double weight = 0;
  Action action = Action::missing;  // copy: of one of the two, where it is no blend
  bool blends = false;              // in linear mode and slerp
  unsigned later = 0;               // a bit for each mode that copies the second
};

template <class Time>
__device__ inline Spot spot_of(const MixedWork& work, const detail::SensorWork& sensor, unsigned b,
                               unsigned t, bool& valid) {
  bool wrong = false;
  const DeviceEpisode episode = device_episode(sensor, b, wrong);
  const Times<Time> times = device_times<Time>(sensor, b, episode);
  const Time wanted = static_cast<const Time*>(work.at)[b * work.at_episode + t * work.at_target];
  const Located located = locate(times, wanted, even_place(work.even, t, times.count),
                                 work.outside == Outside::extrapolate);
  valid = located.where == Where::within;
  Spot spot;
  constexpr Interpolation modes[] = {Interpolation::linear, Interpolation::nearest,
                                     Interpolation::previous, Interpolation::next};
#pragma unroll
  for (const Interpolation mode : modes) {
    const Pick picked = pick(located, times, wanted, mode, work.outside);
    if (mode == Interpolation::linear) {
      spot.blends = picked.action == Action::blend;
      spot.action = spot.blends ? Action::copy : picked.action;
      spot.weight = picked.weight;
    }
    if (picked.first != located.earlier) spot.later |= 1U << static_cast<unsigned>(mode);
  }
  spot.earlier = static_cast<const unsigned char*>(sensor.values) + b * sensor.value_episode +
                 (episode.begin + located.earlier) * sensor.value_sample;
  return spot;
}

template <class Element>
__device__ inline void slerp_unit(unsigned char* to, const unsigned char* x, const unsigned char* y,
                                  std::int64_t step, double weight) {
  using A = Arithmetic<Element>;
  NumberOf<Element> from[4], until[4], result[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    from[i] = A::widen(*reinterpret_cast<const Element*>(x + i * step));
    until[i] = A::widen(*reinterpret_cast<const Element*>(y + i * step));
  }
  slerp(from, until, static_cast<NumberOf<Element>>(weight), result);
#pragma unroll
  for (int i = 0; i < 4; ++i) reinterpret_cast<Element*>(to)[i] = A::narrow(result[i]);
}

template <class Element, unsigned bytes>
__device__ inline void make_unit(unsigned char* to, const unsigned char* x, const unsigned char* y,
                                 double weight) {
  Vector<bytes> v = load<bytes>(x);
  if constexpr (!std::is_same_v<Element, Moved> && bytes >= sizeof(Element)) {
    if (y != nullptr) {
      v = blended_vector<Element>(v, load<bytes>(y), static_cast<NumberOf<Element>>(weight));
    }
  }
  store(to, v);
}

template <class Element>
__device__ inline void make_units(unsigned bytes, unsigned char* to, const unsigned char* x,
                                  const unsigned char* y, double weight) {
  switch (bytes) {
    case 16:
      return make_unit<Element, 16>(to, x, y, weight);
    case 8:
      return make_unit<Element, 8>(to, x, y, weight);
    case 4:
      return make_unit<Element, 4>(to, x, y, weight);
    case 2:
      return make_unit<Element, 2>(to, x, y, weight);
    default:
      return make_unit<Element, 1>(to, x, y, weight);
  }
}

__device__ inline void fill_units(unsigned bytes, unsigned char* to, std::uint64_t bits) {
  switch (bytes) {
    case 16:
      return store(to, repeated<16>(bits));
    case 8:
      return store(to, repeated<8>(bits));
    case 4:
      return store(to, repeated<4>(bits));
    case 2:
      return store(to, repeated<2>(bits));
    default:
      return store(to, repeated<1>(bits));
  }
}

template <class Element, class Time>
__global__ void __launch_bounds__(mixed_threads, 6)
    mixed_kernel(const __grid_constant__ MixedWork work) {
  __shared__ Spot spots[mixed_threads];

  // Setup.
  const unsigned b = work.by_tiles.divide(blockIdx.x);
  const unsigned begin = (blockIdx.x - b * work.tiles) * work.tile;
  const unsigned count = min(work.tile, work.targets - begin);

  // A thread finds one target's samples of one sensor.
  if (const unsigned s = work.by_tile.divide(threadIdx.x), i = threadIdx.x - s * work.tile;
      s < work.sensors && i < count) {
    bool valid = false;
    spots[threadIdx.x] = spot_of<Time>(work, work.sensor[s], b, begin + i, valid);
    if (work.valid != nullptr) {
      work.valid[b * work.valid_episode + (begin + i) * work.valid_target + s * work.valid_sensor] =
          valid;
    }
  }
  __syncthreads();

  // All threads make units.
  unsigned char* const out = work.out + b * work.out_episode + begin * work.out_target;
  for (unsigned i = threadIdx.x; i < count * work.units; i += mixed_threads) {
    const unsigned target = work.by_units.divide(i), unit = i - target * work.units;
    unsigned which = 0;
    while (which + 1 < work.segments && unit >= work.segment[which + 1].begin) ++which;
    const MixedSegment& segment = work.segment[which];
    const unsigned k = unit - segment.begin;
    const Spot& spot = spots[segment.sensor * work.tile + target];
    const bool quaternion = segment.mode == Interpolation::slerp;
    const unsigned parts = quaternion ? 4 : 1;
    unsigned char* const to =
        out + target * work.out_target + segment.out + k * parts * segment.bytes;
    if (spot.action != Action::copy) {
      const std::uint64_t bits = spot.action == Action::fill ? work.fill : work.missing;
      for (unsigned p = 0; p < parts; ++p) fill_units(segment.bytes, to + p * segment.bytes, bits);
      continue;
    }
    const unsigned char* const earlier = spot.earlier + segment.column + k * parts * segment.step;
    const unsigned char* const later = earlier + work.sensor[segment.sensor].value_sample;
    const bool line = segment.mode == Interpolation::linear || quaternion;
    if constexpr (!std::is_same_v<Element, Moved>) {
      if (quaternion && spot.blends) {
        slerp_unit<Element>(to, earlier, later, segment.step, spot.weight);
        continue;
      }
    }
    const Interpolation copied = quaternion ? Interpolation::linear : segment.mode;
    const bool takes_later = (spot.later >> static_cast<unsigned>(copied) & 1U) != 0;
    const unsigned char* const from = takes_later ? later : earlier;
    for (unsigned p = 0; p < parts; ++p) {
      make_units<Element>(segment.bytes, to + p * segment.bytes, from + p * segment.step,
                          line && spot.blends ? later : nullptr, spot.weight);
    }
  }
}

}  // namespace ps::resampling
