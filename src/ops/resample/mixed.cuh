// Any number of sensors, with any modes of their columns, in one pass over the results. A block has
// some targets of one episode. It fetches their times and those of every sensor's samples around
// the place where they may be; then a thread each finds the samples of one target in one sensor;
// then its warps make the rows, a piece of neighbouring columns with one mode after the other. Rows
// rarely end where a vector does: they are put together in shared memory, and leave it together.
#pragma once

#include "ops/resample/near.cuh"
#include "ops/resample/segment.cuh"

namespace ps::resampling {

// Configuration.
inline constexpr unsigned mixed_threads = 128, mixed_warps = mixed_threads / 32;
inline constexpr unsigned mixed_spots = 128;       // targets of a block times sensors, at most
inline constexpr unsigned mixed_rows = 12 * 1024;  // bytes of a block's rows, at most
template <class Time>
inline constexpr int mixed_window = 2048 / sizeof(Time);  // times at hand of a sensor

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
  unsigned row, pitch;  // bytes of a row, and to the next in shared memory; the same where rows lie
                        // one behind the other
  unsigned piece;       // where they do not: what may be stored at once
  kit::Divisor by_pieces{1};  // of a row
  float even;                 // what even_place() wants
  Outside outside;
};

// Shared storage. Behind it lie the times of each sensor, and rows.
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
constexpr unsigned mixed_stride = mixed_window<Time> + 16 / sizeof(Time);  // rows want 16 bytes

// `times`: in which a place was found, the first of them the sample `shift` of the episode, whose
// first row is at `rows`.
template <class Time, class Index>
__device__ inline Spot spot_of(const MixedSensor& sensor, const unsigned char* rows,
                               const Times<Time, Index>& times, Index shift,
                               const LocatedIn<Index>& at, Time wanted, Outside outside) {
  const std::int64_t sample = sensor.sensor.value_sample;
  Spot spot{
      {Source<double>::missing(), 0}, rows + (shift + at.earlier) * sample, Action::missing, 0};
  if ((sensor.modes & line_modes) != 0) {
    PickIn<Index> picked = pick(at, times, wanted, Interpolation::linear, outside);
    picked.first += shift;
    spot.line = source_of<double>(picked, rows, sample);
  }
  // What there is of them is the same in every other mode but for which is copied.
  constexpr Interpolation modes[] = {Interpolation::nearest, Interpolation::previous,
                                     Interpolation::next};
#pragma unroll
  for (const Interpolation mode : modes) {
    if ((sensor.modes & bit_of(mode)) == 0) continue;
    const PickIn<Index> picked = pick(at, times, wanted, mode, outside);
    spot.action = picked.action;
    if (picked.first != at.earlier) {
      spot.later = static_cast<std::uint8_t>(spot.later | bit_of(mode));
    }
  }
  return spot;
}

// Whether all columns of the sensor are made of rows there.
__device__ inline bool is_plain(const MixedSensor& sensor, const Spot& spot) {
  const bool line = (sensor.modes & line_modes) == 0 || spot.line.is_row();
  return line && ((sensor.modes & ~line_modes) == 0 || spot.action == Action::copy);
}

// Sends rows that lie one behind the other, in shared memory as far from 16 bytes as where they go.
__device__ inline void send_together(const unsigned char* from, unsigned char* to, unsigned bytes) {
  const auto past = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(to) % 16);
  const unsigned head = min((16 - past) % 16, bytes), vectors = (bytes - head) / 16;
  for (unsigned i = threadIdx.x; i < vectors; i += mixed_threads) {
    store_global(to + head + i * 16, load<16>(from + head + i * 16));
  }
  const unsigned tail = head + vectors * 16;
  if (threadIdx.x < head) to[threadIdx.x] = from[threadIdx.x];
  if (tail + threadIdx.x < bytes) to[tail + threadIdx.x] = from[tail + threadIdx.x];
}

// Sends rows with something between them.
template <class Piece>
__device__ inline void send_apart(const MixedWork& work, const unsigned char* from,
                                  unsigned char* to, unsigned rows) {
  const auto pieces = static_cast<unsigned>(work.row / sizeof(Piece));
  for (unsigned i = threadIdx.x; i < rows * pieces; i += mixed_threads) {
    const unsigned row = work.by_pieces.divide(i), at = (i - row * pieces) * sizeof(Piece);
    *reinterpret_cast<Piece*>(to + row * work.out_target + at) =
        *reinterpret_cast<const Piece*>(from + row * work.pitch + at);
  }
}

// `turns`: some segments are quaternions, which take registers from everyone.
template <class Element, class Time, bool turns>
__global__ void __launch_bounds__(mixed_threads, turns ? 5 : 6)
    mixed_kernel(const __grid_constant__ MixedWork work) {
  __shared__ MixedStorage<Time> shared;
  extern __shared__ __align__(16) unsigned char behind[];
  auto* const times_near = reinterpret_cast<Time*>(behind);

  // Setup: which targets, and where their samples may be. A warp has one sensor.
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const unsigned b = work.by_tiles.divide(blockIdx.x);
  const unsigned begin = (blockIdx.x - b * work.tiles) * work.tile;
  const unsigned count = min(work.tile, work.targets - begin);
  for (unsigned i = threadIdx.x; i < count; i += mixed_threads) {
    kit::cp_async<sizeof(Time)>(
        &shared.wanted[i],
        static_cast<const Time*>(work.at) + b * work.at_episode + (begin + i) * work.at_target);
  }
  for (unsigned s = warp; s < work.sensors; s += mixed_warps) {
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
    const Near<Time> near = fetch_near<32>(times_near + s * mixed_stride<Time>, times, low,
                                           min(high - low, mixed_window<Time>), lane);
    if (lane == 0) {
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
    const MixedSensor& sensor = work.sensor[s];
    const auto& place = shared.places[s];
    const Near<Time> near{times_near + s * mixed_stride<Time>, place.low, place.count};
    const Times<Time> times{place.times, sensor.sensor.time_sample, place.samples};
    const Time wanted = shared.wanted[i];
    const auto found = [&](const auto& near_or_all, auto shift, const auto& at) {
      const Spot spot = spot_of(sensor, place.rows, near_or_all, shift, at, wanted, work.outside);
      shared.spots[j] = spot;
      special |= !is_plain(sensor, spot);
      if (work.valid != nullptr) {
        work.valid[b * work.valid_episode + (begin + i) * work.valid_target +
                   s * work.valid_sensor] = at.where == Where::within;
      }
    };
    look(times, near, wanted, even_place(work.even, begin + i, place.samples),
         work.outside == Outside::extrapolate, found);
  }
  const bool plain = __syncthreads_or(static_cast<int>(special)) == 0;

  // Warps make rows.
  unsigned char* const out = work.out + b * work.out_episode + begin * work.out_target;
  const bool together = work.row == work.out_target;
  unsigned char* const rows = behind + work.sensors * mixed_stride<Time> * sizeof(Time) +
                              (together ? reinterpret_cast<std::uintptr_t>(out) % 16 : 0);
  unsigned before = 0;  // units
  for (unsigned g = 0; g < work.segments; ++g) {
    const MixedSegment& segment = work.segment[g];
    const unsigned at_once = 32 * mixed_at_once(segment.one_by_one());
    Unit unit{segment,
              work.blank,
              shared.spots + segment.sensor * work.tile,
              rows,
              work.pitch,
              0,
              count * segment.vectors,
              plain};
    // Units go to warps by turns, whatever they are of.
    for (unsigned u = (warp - before) % mixed_warps; u < segment.units; u += mixed_warps) {
      unit.first = u * at_once;
      if (unit.first < unit.all) make_unit<Element, turns>(unit, lane);
    }
    before += segment.units;
  }
  __syncthreads();

  // All threads send them.
  if (together) return send_together(rows, out, count * work.row);
  if (work.piece >= 4) return send_apart<std::uint32_t>(work, rows, out, count);
  if (work.piece == 2) return send_apart<std::uint16_t>(work, rows, out, count);
  send_apart<std::uint8_t>(work, rows, out, count);
}

// Launch.
template <class Element, class Time>
cudaError_t launch_mixed(const MixedWork& work, std::int64_t episodes, bool turns,
                         cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(episodes * work.tiles);
  const std::size_t near = std::size_t{work.sensors} * mixed_stride<Time> * sizeof(Time);
  const std::size_t rows = std::size_t{work.tile} * work.pitch + 16;
  if constexpr (!std::is_same_v<Element, Moved>) {
    if (turns) {
      mixed_kernel<Element, Time, true><<<blocks, mixed_threads, near + rows, stream>>>(work);
      return cudaGetLastError();
    }
  }
  mixed_kernel<Element, Time, false><<<blocks, mixed_threads, near + rows, stream>>>(work);
  return cudaGetLastError();
}

}  // namespace ps::resampling
