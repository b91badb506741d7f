// A block has some targets of one episode. It fetches the times around the place where they may be,
// while the targets themselves are on their way; then a thread each finds a target's samples in
// shared memory, so that no search goes to memory step by step; then all threads move rows.
#pragma once

#include "ops/resample/whole.cuh"

namespace ps::resampling {

// Configuration. Deep: a thread has more vectors under way, and all of its block's in fewer rounds.
template <class Element_, class Time_, unsigned bytes_, bool deep>
struct TileConfig {
  using Element = Element_;
  using Time = Time_;
  static constexpr unsigned bytes = bytes_;  // of a vector
  static constexpr unsigned threads = bytes < 16 ? 64 : 128;
  // Blocks of a multiprocessor, and vectors that a thread has under way.
  static constexpr unsigned resident = 1024 / threads;
  static constexpr unsigned at_once = deep ? 4 : bytes < 16 ? 3 : 2;
  static constexpr bool reloads = deep;  // registers are for those
  static constexpr unsigned targets = threads, vectors = deep ? 1024 : 2048;  // of a block, at most
  static constexpr int window = sizeof(Time) == 4 ? Near<Time>::most : 504;   // times at hand
};

// Shared storage.
template <class Config>
struct TileStorage {
  alignas(16) typename Config::Time times[Near<typename Config::Time>::room(Config::window)];
  Pair<NumberOf<typename Config::Element>> pairs[Config::targets];
};

template <class Config>
__global__ void __launch_bounds__(Config::threads, Config::resident)
    tile_kernel(const __grid_constant__ TileWork work) {
  using Time = typename Config::Time;
  using Number = NumberOf<typename Config::Element>;
  constexpr unsigned bytes = Config::bytes, threads = Config::threads;
  __shared__ TileStorage<Config> shared;
  const WholeWork& whole = work.whole;

  // Setup: which targets, and where their samples may be.
  const unsigned b = work.by_tiles.divide(blockIdx.x);
  const unsigned begin = (blockIdx.x - b * work.tiles) * work.tile;
  const unsigned count = min(work.tile, whole.targets - begin), t = begin + threadIdx.x;
  const bool finds = threadIdx.x < count;
  Time wanted{};
  if (finds) {
    wanted = static_cast<const Time*>(whole.at)[b * whole.at_episode + t * whole.at_target];
  }
  bool wrong = false;  // such an episode has no samples
  const DeviceEpisode episode = device_episode(whole.sensor, b, wrong);
  const Times<Time> times = device_times<Time>(whole.sensor, b, episode);
  const unsigned char* const rows = static_cast<const unsigned char*>(whole.sensor.values) +
                                    b * whole.sensor.value_episode +
                                    episode.begin * whole.sensor.value_sample;
  const auto all = static_cast<int>(times.count);
  const int from = even_place(whole.even, begin, all);
  const int until = min(even_place(whole.even, begin + count - 1, all) + 2, all);
  const int low = max(from - work.margin, 0);
  const int near_count = min(min(until + work.margin, all) - low, Config::window);
  const Near<Time> near = fetch_near<threads>(shared.times, times, low, near_count, threadIdx.x);

  kit::cp_async_commit();
  kit::cp_async_wait<0>();
  __syncthreads();

  // A thread finds one target's samples.
  bool special = false;
  if (finds) {
    const auto made = find_pair<Number>(near, times, wanted,
                                        mode_of<typename Config::Element>(whole), whole.outside);
    special = !made.pair.is_row();
    shared.pairs[threadIdx.x] = made.pair;
    if (whole.valid != nullptr) {
      whole.valid[b * whole.valid_episode + t * whole.valid_target] = made.within;
    }
  }
  const bool plain = __syncthreads_or(static_cast<int>(special)) == 0;

  // All threads move rows.
  make_strip<typename Config::Element, bytes, threads, Config::at_once, Config::reloads>(
      whole.strip, whole.blank, shared.pairs, rows, count,
      whole.out + b * whole.out_episode + begin * whole.out_target, plain, threadIdx.x);
}

// Launch.
template <class Config>
cudaError_t launch_tiles(const TileWork& work, std::int64_t episodes, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(episodes * work.tiles);
  tile_kernel<Config><<<blocks, Config::threads, 0, stream>>>(work);
  return cudaGetLastError();
}

}  // namespace ps::resampling
