// Any number of sensors, with any modes of their columns, in one pass over the results. A block has
// some targets of one episode. It fetches their times and those of every sensor's samples around
// the place where they may be; then a thread each finds the samples of one target in one sensor;
// then its warps make the rows, a piece of neighbouring columns with one mode after the other. Rows
// rarely end where a vector does: they are put together in shared memory, and leave it together.
#pragma once

#include <algorithm>

#include "ops/resample/near.cuh"
#include "ops/resample/segment.cuh"
#include "penstock/kit/bulk.cuh"
#include "penstock/kit/fence.cuh"

namespace ps::resampling {

// Configuration.
inline constexpr unsigned mixed_threads = 128, mixed_warps = mixed_threads / 32;
inline constexpr unsigned mixed_spots = 128;       // targets of a block times sensors, at most
inline constexpr unsigned mixed_rows = 12 * 1024;  // bytes of a block's rows, at most
inline constexpr unsigned mixed_segments = 16;     // of a launch, whose work is sent along
template <class Time>
inline constexpr int mixed_window = 2048 / sizeof(Time);  // times at hand of a sensor

// What a target has a source for: a mode, where slerp's are linear's.
__host__ __device__ constexpr unsigned bit_of(Interpolation mode) {
  return 1U << static_cast<unsigned>(mode == Interpolation::slerp ? Interpolation::linear : mode);
}

struct MixedSensor {
  detail::SensorWork sensor;  // strides of values are in bytes
  int margin;                 // times before and behind the place where a target's may be
  bool ragged;                // has lengths or offsets
  unsigned modes;             // bits of those that its columns have
  unsigned source;            // of the block's first target in the first of its modes, among all
};

// Strides of results are in bytes. What every block asks for first stands first: it comes from
// memory line by line, too.
struct MixedWork {
  unsigned targets;  // of an episode
  unsigned tile;     // of a block; times `sensors` at most mixed_spots
  unsigned tiles;    // of an episode
  kit::Divisor by_tiles{1}, by_tile{1};
  unsigned sensors, segments;
  unsigned sources;  // of a block
  float even;        // what even_place() wants
  Outside outside;
  const void* at;
  std::int64_t at_episode, at_target;
  MixedSensor sensor[detail::max_sensors];
  MixedSegment segment[mixed_segments];
  unsigned char* out;
  std::int64_t out_episode, out_target;
  unsigned units;       // of what a warp makes at once
  unsigned row, pitch;  // bytes of a row, and to the next in shared memory; the same where rows lie
                        // one behind the other
  unsigned piece;       // where they do not: what may be stored at once
  kit::Divisor by_pieces{1};  // of a row
  Blank blank;
  bool* valid;
  std::int64_t valid_episode, valid_target, valid_sensor;
};
static_assert(sizeof(MixedWork) <= 4096);  // what every driver sends along

// Shared storage. Behind it lie sources, then the times of each sensor and, in their place when all
// are found, rows: what it takes is taken from the cache that loads go through.
template <class Time>
struct MixedStorage {
  struct Place {  // of an episode
    const Time* times;
    std::int64_t samples;
    const unsigned char* rows;
    int first, low, count;  // of the times at hand: where they begin, as Near has them
    bool ends;
  };
  Place places[detail::max_sensors];
  Time wanted[mixed_spots];
};
template <class Time>
constexpr unsigned mixed_stride = Near<Time>::room(mixed_window<Time>);

// What the modes of a sensor make of a place, where it was found. `rows`: the episode's. Whether
// that are rows of values.
template <class Number, class Found, class Index>
__device__ inline bool find_sources(const MixedSensor& sensor, const unsigned char* rows,
                                    const Found& found, Index shift, Outside outside,
                                    Source<Number>* to, unsigned tile) {
  constexpr Interpolation modes[] = {Interpolation::linear, Interpolation::nearest,
                                     Interpolation::previous, Interpolation::next};
  bool plain = true;
#pragma unroll
  for (const Interpolation mode : modes) {
    if ((sensor.modes & bit_of(mode)) == 0) continue;
    auto picked = found.pick(mode, outside);
    picked.first += shift;
    const auto source = source_of<Number>(picked, rows, sensor.sensor.value_sample);
    plain &= source.is_row();
    *to = source;
    to += tile;
  }
  return plain;
}

// Sends rows that lie one behind the other, in shared memory as far from 16 bytes as where they go.
__device__ inline void send_together(const unsigned char* from, unsigned char* to, unsigned bytes) {
#if __CUDA_ARCH__ >= 900
  if ((reinterpret_cast<std::uintptr_t>(to) | bytes) % 16 == 0) {
    if (threadIdx.x == 0 && bytes > 0) {
      kit::bulk_store(to, from, bytes);
      kit::bulk_commit();
      kit::bulk_wait_read<0>();
    }
    return;
  }
#endif
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

// Blocks of a multiprocessor. Quaternions and whole times take registers from everyone.
template <class Time, bool turns>
inline constexpr int mixed_resident = turns                      ? 5
                                      : std::is_integral_v<Time> ? 7
                                                                 : 9;

// `turns`: some segments are quaternions.
template <class Element, class Time, bool turns>
__global__ void __launch_bounds__(mixed_threads, mixed_resident<Time, turns>)
    mixed_kernel(const __grid_constant__ MixedWork work) {
  using Number = NumberOf<Element>;
  __shared__ MixedStorage<Time> shared;
  extern __shared__ __align__(16) unsigned char behind[];
  auto* const sources = reinterpret_cast<Source<Number>*>(behind);
  auto* const times_near = reinterpret_cast<Time*>(sources + work.sources);

  // Setup: which targets, and where their samples may be. A warp has one sensor.
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const unsigned b = work.by_tiles.divide(blockIdx.x);
  const unsigned begin = (blockIdx.x - b * work.tiles) * work.tile;
  const unsigned count = min(work.tile, work.targets - begin);
  if (threadIdx.x < count) {
    kit::cp_async<sizeof(Time)>(&shared.wanted[threadIdx.x],
                                static_cast<const Time*>(work.at) + b * work.at_episode +
                                    (begin + threadIdx.x) * work.at_target);
  }
#pragma unroll 1
  for (unsigned s = warp; s < work.sensors; s += mixed_warps) {
    const MixedSensor& sensor = work.sensor[s];
    DeviceEpisode episode{0, sensor.sensor.samples};
    if (sensor.ragged) {
      bool wrong = false;
      episode = device_episode(sensor.sensor, b, wrong);
    }
    const Times<Time> times = device_times<Time>(sensor.sensor, b, episode);
    // None at hand of so many that places may take more than an int.
    const bool many = sensor.sensor.samples > most_samples;
    const auto all = static_cast<int>(times.count);
    const int from = even_place(work.even, begin, all);
    const int until = min(even_place(work.even, begin + count - 1, all) + 2, all);
    const int low = many ? 0 : max(from - sensor.margin, 0);
    const int high = many ? 0 : min(until + sensor.margin, all);
    const Near<Time> near = fetch_near<32>(times_near + s * mixed_stride<Time>, times, low,
                                           min(high - low, mixed_window<Time>), lane);
    if (lane == 0) {
      shared.places[s] = {times.first,
                          times.count,
                          static_cast<const unsigned char*>(sensor.sensor.values) +
                              b * sensor.sensor.value_episode +
                              episode.begin * sensor.sensor.value_sample,
                          static_cast<int>(near.times - times_near),
                          near.low,
                          near.count,
                          near.ends};
    }
  }
  kit::cp_async_commit();
  kit::cp_async_wait<0>();
  __syncthreads();

  // A thread finds one target's samples of one sensor.
  bool special = false;
#pragma unroll 1
  for (unsigned j = threadIdx.x; j < work.tile * work.sensors; j += mixed_threads) {
    const unsigned s = work.by_tile.divide(j), i = j - s * work.tile;
    if (i >= count) continue;
    const MixedSensor& sensor = work.sensor[s];
    const auto& place = shared.places[s];
    const Near<Time> near{times_near + place.first, place.low, place.count, place.ends};
    const Time wanted = shared.wanted[i];
    const auto then = [&](const auto& found, auto shift) {
      special |= !find_sources(sensor, place.rows, found, shift, work.outside,
                               sources + sensor.source + i, work.tile);
      if (work.valid != nullptr) {
        work.valid[b * work.valid_episode + (begin + i) * work.valid_target +
                   s * work.valid_sensor] = found.within();
      }
    };
    const int passed = not_later(near, wanted);
    const Sight<Time> seen = sight<false>(near, passed, wanted, work.outside);
    if (seen.clear) [[likely]] {
      then(seen.found, near.low);
    } else {
      const Times<Time> all{place.times, sensor.sensor.time_sample, place.samples};
      const Search<Time> other = search(near, all, passed, wanted, work.outside);
      then(other.found, other.shift);
    }
  }
  const bool plain = __syncthreads_or(static_cast<int>(special)) == 0;

  // Warps make rows. What they make at once goes to them by turns, whatever it is of.
  unsigned char* const out = work.out + b * work.out_episode + begin * work.out_target;
  const bool together = work.row == work.out_target;
  unsigned char* const rows = reinterpret_cast<unsigned char*>(times_near) +
                              (together ? reinterpret_cast<std::uintptr_t>(out) % 16 : 0);
  unsigned g = 0;
#pragma unroll 1
  for (unsigned u = warp; u < work.units; u += mixed_warps) {
    while (u >= work.segment[g].end) ++g;
    const MixedSegment& segment = work.segment[g];
    const unsigned number = u - segment.begin, group = segment.by_parts.divide(number);
    const unsigned part = number - group * segment.by_parts.value();
    const unsigned width = segment.by_width.value(), below = segment.by_width.divide(lane);
    const Share<Number> share{segment,
                              work.blank,
                              sources + segment.source,
                              rows,
                              work.pitch,
                              group * segment.at_once * segment.abreast + below,
                              count,
                              part * width + lane - below * width,
                              plain};
    if (below < segment.abreast && share.target < count && share.vector < segment.vectors) {
      make_share<Element, turns>(share);
    }
  }
#if __CUDA_ARCH__ >= 900
  kit::fence_shared_to_async();  // for send_together()
#endif
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
  const std::size_t sources = std::size_t{work.sources} * sizeof(Source<NumberOf<Element>>);
  const std::size_t near = std::size_t{work.sensors} * mixed_stride<Time> * sizeof(Time);
  const std::size_t rows = std::size_t{work.tile} * work.pitch + 16;
  const std::size_t bytes = sources + std::max(near, rows);
  if constexpr (!std::is_same_v<Element, Moved>) {
    if (turns) {
      mixed_kernel<Element, Time, true><<<blocks, mixed_threads, bytes, stream>>>(work);
      return cudaGetLastError();
    }
  }
  mixed_kernel<Element, Time, false><<<blocks, mixed_threads, bytes, stream>>>(work);
  return cudaGetLastError();
}

}  // namespace ps::resampling
