// Blocks that stay. One warp of a block finds the samples of some targets ahead of the others,
// which move rows: a ring lies between them, so that rows are on their way while the next are
// looked for. Every block has as many targets as any other, one behind the other, and knows from
// the last ones where the next may be. Compute capability 9.0.
#pragma once

#include <algorithm>

#include "ops/resample/whole.cuh"
#include "penstock/kit/barrier.cuh"
#include "penstock/kit/fence.cuh"
#include "penstock/kit/ring.h"
#include "penstock/kit/roles.cuh"

namespace ps::resampling {

// Configuration.
template <class Element_, class Time_, unsigned movers_ = 4, unsigned resident_ = 6>
struct RingConfig {
  using Element = Element_;
  using Time = Time_;
  using Roles = kit::Roles<1, movers_>;
  static constexpr unsigned bytes = 16;  // of a vector
  static constexpr unsigned resident = resident_;
  static constexpr unsigned depth = 3;
  static constexpr unsigned targets = kit::warp_threads;  // of a stage, a lane each
  static constexpr unsigned at_once = sizeof(NumberOf<Element>) == 4 ? 4 : 2;
  static constexpr int window = 1024;  // times at hand
  static constexpr int drift = 48;     // times before and behind a place that the last targets tell
};

struct RingWork {
  WholeWork whole;
  kit::Divisor by_targets{1};
  std::uint64_t all;  // targets of all episodes
};

// Shared storage.
template <class Config>
struct RingStorage {
  struct Stage {
    Source<NumberOf<typename Config::Element>> sources[Config::targets];
    unsigned char* out;
    unsigned count;  // 0: no more
    bool plain;
  };
  // Of the targets in hand, and of those behind them.
  typename Config::Time times[2][Config::window + Near<typename Config::Time>::beyond];
  Stage stages[Config::depth];
  kit::Ring<kit::Barrier, Config::depth> ring;
};

// Some targets of one episode, and the times where they may be.
template <class Time>
struct Batch {
  unsigned b = 0, begin = 0, count = 0;
  DeviceEpisode episode{};
  Times<Time> times{};
  Near<Time> near{};
  Time wanted{};
};

// The finder's loop, by one warp.
template <class Config>
__device__ inline void find_all(const RingWork& work, RingStorage<Config>& shared, unsigned first,
                                unsigned last) {
  using Time = typename Config::Time;
  using Number = NumberOf<typename Config::Element>;
  const WholeWork& whole = work.whole;
  const unsigned lane = kit::lane_index();
  kit::Producer producer(shared.ring);

  // How far the last target that was found lay from where even steps would have it.
  int off = 0;
  unsigned known = ~0U;  // the episode that this was in

  const auto fetch = [&](unsigned from, unsigned buffer) {
    Batch<Time> batch;
    if (from >= last) return batch;
    batch.b = work.by_targets.divide(from);
    batch.begin = from - batch.b * whole.targets;
    batch.count = min(min(Config::targets, last - from), whole.targets - batch.begin);
    if (lane < batch.count) {
      batch.wanted = static_cast<const Time*>(
          whole.at)[batch.b * whole.at_episode + (batch.begin + lane) * whole.at_target];
    }
    bool wrong = false;
    batch.episode = device_episode(whole.sensor, batch.b, wrong);
    batch.times = device_times<Time>(whole.sensor, batch.b, batch.episode);
    const auto all = static_cast<int>(batch.times.count);
    const bool knows = known == batch.b;
    const int margin = knows ? Config::drift : whole.margin, shift = knows ? off : 0;
    const int at = even_place(whole.even, batch.begin, all) + shift;
    const int end = even_place(whole.even, batch.begin + batch.count - 1, all) + shift;
    const int low = min(max(at - margin, 0), all);
    const int high = min(max(end + margin + 2, low), all);
    batch.near = fetch_near<kit::warp_threads>(shared.times[buffer], batch.times, low,
                                               min(high - low, Config::window), lane);
    return batch;
  };

  Batch<Time> batch = fetch(first, 0);
  kit::cp_async_commit();
  for (unsigned buffer = 1; batch.count > 0; buffer ^= 1) {
    const unsigned next = batch.b * whole.targets + batch.begin + batch.count;
    const Batch<Time> behind = fetch(next, buffer);
    kit::cp_async_commit();
    kit::cp_async_wait<1>();
    __syncwarp();

    const unsigned t = batch.begin + lane;
    const auto all = static_cast<int>(batch.times.count);
    const int even = even_place(whole.even, t, all);
    Source<Number> source{Source<Number>::missing(), 0};
    bool special = false;
    int place = even;
    if (lane < batch.count) {
      const Seen<Time> seen =
          look(batch.times, batch.near, batch.wanted, even, whole.outside == Outside::extrapolate);
      Pick picked = pick(seen.at, seen.times, batch.wanted,
                         mode_of<typename Config::Element>(whole), whole.outside);
      picked.first += seen.shift;
      const unsigned char* const rows = static_cast<const unsigned char*>(whole.sensor.values) +
                                        batch.b * whole.sensor.value_episode +
                                        batch.episode.begin * whole.sensor.value_sample;
      source = source_of<Number>(picked, rows, whole.sensor.value_sample);
      special = !source.is_row();
      if (!special) place = static_cast<int>(picked.first);
      if (whole.valid != nullptr) {
        whole.valid[batch.b * whole.valid_episode + t * whole.valid_target] =
            seen.at.where == Where::within;
      }
    }
    off = __shfl_sync(~0U, place - even, batch.count - 1);
    known = batch.b;
    const bool plain = __any_sync(~0U, special) == 0;

    auto& stage = shared.stages[producer.acquire()];
    stage.sources[lane] = source;
    if (lane == 0) {
      stage.out = whole.out + batch.b * whole.out_episode + batch.begin * whole.out_target;
      stage.count = batch.count;
      stage.plain = plain;
    }
    __syncwarp();
    if (lane == 0) producer.commit();
    batch = behind;
  }
  auto& stage = shared.stages[producer.acquire()];
  if (lane == 0) {
    stage.count = 0;
    producer.commit();
  }
}

template <class Config>
__device__ inline void move_all(const RingWork& work, RingStorage<Config>& shared) {
  using Roles = typename Config::Roles;
  kit::Consumer consumer(shared.ring);
  const unsigned thread = Roles::index(kit::Role::compute);
  while (true) {
    const auto& stage = shared.stages[consumer.wait()];
    const unsigned count = stage.count;
    if (count == 0) return;
    make_strip<GlobalRows, typename Config::Element, Config::bytes, Roles::compute_threads,
               Config::at_once>(
        work.whole.strip, work.whole.blank, [&](unsigned i) { return stage.sources[i]; }, count,
        stage.out, stage.plain, thread);
    __syncwarp();
    if (kit::lane_index() == 0) consumer.release();
  }
}

template <class Config>
__global__ void __launch_bounds__(Config::Roles::threads, Config::resident)
    ring_kernel(const __grid_constant__ RingWork work) {
  using Roles = typename Config::Roles;
  __shared__ RingStorage<Config> shared;

  // Setup.
  if (threadIdx.x == 0) {
    shared.ring.init(1, Roles::compute_threads / kit::warp_threads);
    kit::fence_barrier_init();
  }
  __syncthreads();

  // Roles. Every block has the same share, give or take one.
  if (Roles::role() == kit::Role::loader) {
    const auto first = static_cast<unsigned>(work.all * blockIdx.x / gridDim.x);
    const auto last = static_cast<unsigned>(work.all * (blockIdx.x + 1) / gridDim.x);
    find_all<Config>(work, shared, first, last);
  } else {
    move_all<Config>(work, shared);
  }
}

// Launch.
template <class Config>
cudaError_t launch_ring(const RingWork& work, int multiprocessors, cudaStream_t stream) {
  constexpr unsigned fewest = 4;  // targets that a block is worth
  const auto most = static_cast<std::uint64_t>(multiprocessors) * Config::resident;
  const auto blocks = static_cast<unsigned>(std::clamp<std::uint64_t>(work.all / fewest, 1, most));
  ring_kernel<Config><<<blocks, Config::Roles::threads, 0, stream>>>(work);
  return cudaGetLastError();
}

}  // namespace ps::resampling
