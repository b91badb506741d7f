// A block has some targets of one episode. It fetches the times around the place where they may be,
// while the targets themselves are on their way; then a thread each finds a target's samples in
// shared memory, so that no search goes to memory step by step; then all threads move rows. Short
// rows come into shared memory as well, and with the times: as many as the targets would take from
// an even clock. Those that the guess missed come from where they are.
#pragma once

#include "ops/resample/whole.cuh"

namespace ps::resampling {

// Configuration.
template <class Element_, class Time_, unsigned bytes_, bool staged_>
struct TileConfig {
  using Element = Element_;
  using Time = Time_;
  static constexpr unsigned bytes = bytes_;  // of a vector
  static constexpr bool staged = staged_;    // rows come into shared memory first
  static constexpr unsigned threads = 128;
  static constexpr unsigned resident = 6;  // blocks that fit on a multiprocessor at least
  // Vectors that a thread has under way. Fewer where f64 takes the registers.
  static constexpr unsigned at_once = sizeof(NumberOf<Element>) == 4 ? 4 : 2;
  static constexpr int window = 8192 / sizeof(Time) / 2;  // times at hand
};

struct TileWork {
  WholeWork whole;
  unsigned tile;   // targets of a block, at most as many as it has threads
  unsigned tiles;  // of an episode
  kit::Divisor by_tiles{1};
  unsigned stage;  // rows that shared memory holds
};

// Shared storage; the staged rows lie behind it.
template <class Config>
struct TileStorage {
  typename Config::Time times[Config::window + Near<typename Config::Time>::beyond];
  Source<NumberOf<typename Config::Element>> sources[Config::threads];
};

template <class Config>
__global__ void __launch_bounds__(Config::threads, Config::resident)
    tile_kernel(const __grid_constant__ TileWork work) {
  using Time = typename Config::Time;
  using Number = NumberOf<typename Config::Element>;
  constexpr unsigned bytes = Config::bytes, threads = Config::threads;
  __shared__ TileStorage<Config> shared;
  extern __shared__ __align__(16) unsigned char staged[];
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
  bool wrong = false;
  const DeviceEpisode episode = device_episode(whole.sensor, b, wrong);
  const Times<Time> times = device_times<Time>(whole.sensor, b, episode);
  const unsigned char* const rows = static_cast<const unsigned char*>(whole.sensor.values) +
                                    b * whole.sensor.value_episode +
                                    episode.begin * whole.sensor.value_sample;
  const auto all = static_cast<int>(times.count);
  const int from = even_place(whole.even, begin, all);
  const int until = min(even_place(whole.even, begin + count - 1, all) + 2, all);
  const int low = max(from - whole.margin, 0);
  const int near_count = min(min(until + whole.margin, all) - low, Config::window);
  const Near<Time> near = fetch_near<threads>(shared.times, times, low, near_count, threadIdx.x);

  // Rows of the same place, with what room is left to be wrong.
  int stage_low = 0, stage_count = 0;
  if constexpr (Config::staged) {
    const auto room = static_cast<int>(work.stage) - (until - from);
    if (room >= 0) {
      stage_low = max(from - room / 2, 0);
      stage_count = min(stage_low + static_cast<int>(work.stage), all) - stage_low;
      const unsigned vectors = static_cast<unsigned>(stage_count) * whole.strip.vectors;
      const unsigned char* const at = rows + stage_low * whole.sensor.value_sample;
      for (unsigned i = threadIdx.x; i < vectors; i += threads) {
        kit::cp_async<bytes>(staged + i * bytes, at + i * bytes);
      }
    }
  }
  kit::cp_async_commit();
  kit::cp_async_wait<0>();
  __syncthreads();

  // A thread finds one target's samples.
  bool special = false;
  if (finds) {
    const Seen<Time> seen = look(times, near, wanted, even_place(whole.even, t, all),
                                 whole.outside == Outside::extrapolate);
    Pick picked =
        pick(seen.at, seen.times, wanted, mode_of<typename Config::Element>(whole), whole.outside);
    picked.first += seen.shift;
    Source<Number> source = source_of<Number>(picked, rows, whole.sensor.value_sample);
    special = !source.is_row();
    if constexpr (Config::staged) {
      const auto place = static_cast<int>(picked.first) - stage_low;
      if (!special && place >= 0 && place + (source.weight != 0 ? 1 : 0) < stage_count) {
        source.row = staged + place * static_cast<int>(whole.sensor.value_sample);
      }
    }
    shared.sources[threadIdx.x] = source;
    if (whole.valid != nullptr) {
      whole.valid[b * whole.valid_episode + t * whole.valid_target] =
          seen.at.where == Where::within;
    }
  }
  const bool plain = __syncthreads_or(static_cast<int>(special)) == 0;

  // All threads move rows.
  using Rows = std::conditional_t<Config::staged, AnyRows, GlobalRows>;
  make_strip<Rows, typename Config::Element, bytes, threads, Config::at_once>(
      whole.strip, whole.blank, [&](unsigned i) { return shared.sources[i]; }, count,
      whole.out + b * whole.out_episode + begin * whole.out_target, plain, threadIdx.x);
}

// Launch.
template <class Config>
cudaError_t launch_tiles(const TileWork& work, std::int64_t episodes, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(episodes * work.tiles);
  const std::size_t stage = Config::staged
                                ? std::size_t{work.stage} * work.whole.strip.vectors * Config::bytes
                                : std::size_t{0};
  tile_kernel<Config><<<blocks, Config::threads, stage, stream>>>(work);
  return cudaGetLastError();
}

}  // namespace ps::resampling
