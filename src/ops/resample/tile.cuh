// One sensor whose columns are side by side and have one mode, any but slerp: rows move whole. A
// block has some targets of one episode. It fetches the times around the place where they may be,
// while the targets themselves are on their way; then a thread each finds a target's samples in
// shared memory, so that no search goes to memory step by step; then all threads move rows.
#pragma once

#include "ops/resample/element.cuh"
#include "ops/resample/gpu.cuh"

namespace ps::resampling {

// Configuration.
template <class Element_, class Time_, unsigned bytes_>
struct TileConfig {
  using Element = Element_;
  using Time = Time_;
  static constexpr unsigned bytes = bytes_;  // of a vector
  static constexpr unsigned threads = 128;
  // Vectors that a thread has under way. Fewer where f64 takes the registers.
  static constexpr unsigned at_once = sizeof(NumberOf<Element>) == 4 ? 4 : 2;
  static constexpr int window = 8192 / sizeof(Time) / 2;  // times at hand
};

// Strides of values and results are in bytes.
struct TileWork {
  detail::SensorWork sensor;
  const void* at;
  std::int64_t at_episode, at_target;
  unsigned char* out;
  std::int64_t out_episode, out_target;
  bool* valid;
  std::int64_t valid_episode, valid_target;
  std::uint64_t fill, missing;  // bits of an element, filling 8 bytes
  unsigned targets;             // of an episode
  unsigned tile;                // of a block, at most as many as it has threads
  unsigned vectors;             // of a row
  Divider by_tiles, by_vectors;
  unsigned tiles;  // of an episode
  int margin;      // times before and behind the place where they may be
  Interpolation mode;
  Outside outside;
};

// Shared storage.
template <class Config>
struct TileStorage {
  typename Config::Time times[Config::window];
  struct Found {
    const unsigned char* row;  // 0 and 1: none, but `missing` and `fill`
    NumberOf<typename Config::Element> weight;
  } found[Config::threads];
};

template <class Config>
__global__ void __launch_bounds__(Config::threads, 6)
    tile_kernel(const __grid_constant__ TileWork work) {
  using Element = typename Config::Element;
  using Time = typename Config::Time;
  using Number = NumberOf<Element>;
  constexpr unsigned bytes = Config::bytes, at_once = Config::at_once, threads = Config::threads;
  constexpr bool moves = std::is_same_v<Element, Moved>;
  __shared__ TileStorage<Config> shared;

  // Setup: which targets, and where their samples may be.
  const unsigned b = work.by_tiles(blockIdx.x);
  const unsigned begin = (blockIdx.x - b * work.tiles) * work.tile;
  const unsigned count = min(work.tile, work.targets - begin), t = begin + threadIdx.x;
  const bool finds = threadIdx.x < count;
  Time wanted{};
  if (finds) {
    wanted = static_cast<const Time*>(work.at)[b * work.at_episode + t * work.at_target];
  }
  bool wrong = false;
  const DeviceEpisode episode = device_episode(work.sensor, b, wrong);
  const Times<Time> times = device_times<Time>(work.sensor, b, episode);
  const auto all = static_cast<int>(times.count);
  const int low = max(static_cast<int>(even_place(begin, work.targets, all)) - work.margin, 0);
  const int high = min(
      static_cast<int>(even_place(begin + count - 1, work.targets, all)) + work.margin + 2, all);
  const int size = min(high - low, Config::window);
  for (int i = static_cast<int>(threadIdx.x); i < size; i += static_cast<int>(threads)) {
    shared.times[i] = times[low + i];
  }
  __syncthreads();

  // A thread finds one target's samples.
  if (finds) {
    const Time* const near = shared.times;
    Pick picked;
    Where where = Where::within;
    if (size > 1 && near[0] <= wanted && wanted < near[size - 1]) {
      int place = 0;
      for (int length = size - 1; length > 1;) {
        const int half = length / 2;
        place += near[place + half] <= wanted ? half : 0;
        length -= half;
      }
      const Located located{where, place, place + (near[place] == wanted ? 0 : 1)};
      picked = pick(located, Times<Time>{near, 1, size}, wanted, work.mode, work.outside);
      picked.first += low;
    } else {
      const Located located = locate(times, wanted, even_place(t, work.targets, times.count),
                                     work.outside == Outside::extrapolate);
      where = located.where;
      picked = pick(located, times, wanted, work.mode, work.outside);
    }
    if (work.valid != nullptr) {
      work.valid[b * work.valid_episode + t * work.valid_target] = where == Where::within;
    }
    const auto* row = static_cast<const unsigned char*>(work.sensor.values) +
                      b * work.sensor.value_episode +
                      (episode.begin + picked.first) * work.sensor.value_sample;
    if (picked.action == Action::missing) row = nullptr;
    if (picked.action == Action::fill) row = reinterpret_cast<const unsigned char*>(1);
    const bool blends = picked.action == Action::blend;
    shared.found[threadIdx.x] = {row, blends ? static_cast<Number>(picked.weight) : Number{0}};
  }
  __syncthreads();

  // All threads move rows.
  unsigned char* const out = work.out + b * work.out_episode + begin * work.out_target;
  const unsigned vectors = count * work.vectors;
  for (unsigned first = threadIdx.x; first < vectors; first += threads * at_once) {
    Vector<bytes> x[at_once], y[at_once];
    Number weight[at_once];
    unsigned char* to[at_once];
#pragma unroll
    for (unsigned k = 0; k < at_once; ++k) {
      const unsigned i = first + k * threads;
      to[k] = nullptr;
      if (i >= vectors) continue;
      const unsigned target = work.by_vectors(i), at = (i - target * work.vectors) * bytes;
      const auto found = shared.found[target];
      weight[k] = found.weight;
      to[k] = out + target * work.out_target + at;
      if (reinterpret_cast<std::uintptr_t>(found.row) <= 1) {
        x[k] = repeated<bytes>(found.row == nullptr ? work.missing : work.fill);
        continue;
      }
      x[k] = load<bytes>(found.row + at);
      if (!moves && weight[k] != 0) y[k] = load<bytes>(found.row + work.sensor.value_sample + at);
    }
#pragma unroll
    for (unsigned k = 0; k < at_once; ++k) {
      if (to[k] == nullptr) continue;
      if constexpr (!moves) {
        if (weight[k] != 0) x[k] = blended_vector<Element>(x[k], y[k], weight[k]);
      }
      store(to[k], x[k]);
    }
  }
}

// Launch.
template <class Config>
cudaError_t launch_tiles(const TileWork& work, std::int64_t episodes, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(episodes * work.tiles);
  tile_kernel<Config><<<blocks, Config::threads, 0, stream>>>(work);
  return cudaGetLastError();
}

}  // namespace ps::resampling
