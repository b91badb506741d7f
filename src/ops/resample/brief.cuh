// A block has some targets of an episode so short that all of it comes into shared memory at once,
// rows and times: one trip to memory, where the others make a second one for the rows they found.
#pragma once

#include "ops/resample/brief.h"
#include "ops/resample/whole.cuh"

namespace ps::resampling {

// Shared storage.
template <class Time>
struct BriefStorage {
  alignas(16) Time times[Near<Time>::room(brief_samples)];
  alignas(16) unsigned char rows[brief_rows];
};

template <class Element, class Time>
__global__ void __launch_bounds__(brief_threads)
    brief_kernel(const __grid_constant__ TileWork work) {
  constexpr unsigned bytes = brief_vector;
  __shared__ BriefStorage<Time> shared;
  const WholeWork& whole = work.whole;
  const unsigned vectors = whole.strip.vectors;

  // Setup: which target and which vector of its row.
  const unsigned b = work.by_tiles.divide(blockIdx.x);
  const unsigned begin = (blockIdx.x - b * work.tiles) * work.tile;
  const unsigned i = whole.strip.by_vectors.divide(threadIdx.x);
  const unsigned t = begin + i, at = (threadIdx.x - i * vectors) * bytes;
  const bool makes = i < min(work.tile, whole.targets - begin);
  Time wanted{};
  if (makes) {
    wanted = static_cast<const Time*>(whole.at)[b * whole.at_episode + t * whole.at_target];
  }
  bool wrong = false;
  const DeviceEpisode episode = device_episode(whole.sensor, b, wrong);
  const Times<Time> times = device_times<Time>(whole.sensor, b, episode);
  const unsigned char* const rows =
      static_cast<const unsigned char*>(whole.sensor.values) + b * whole.sensor.value_episode;
  const auto samples = static_cast<unsigned>(times.count);
  const unsigned step = brief_threads / vectors;  // samples that all threads ask for at once
#pragma unroll 2
  for (unsigned s = i; i < step && s < samples; s += step) {
    kit::cp_async<bytes>(shared.rows + (s * vectors * bytes + at),
                         rows + s * whole.sensor.value_sample + at);
  }
  const Near<Time> near =
      fetch_near<brief_threads>(shared.times, times, 0, static_cast<int>(samples), threadIdx.x);
  kit::cp_async_commit();
  kit::cp_async_wait<0>();
  __syncthreads();
  if (!makes) return;

  // A thread finds its target's samples, as those beside it do that make the same row.
  const Times<Time, int> all{near.times, 1, near.count};
  const auto place =
      located(all, wanted, not_later(near, wanted) - 1, whole.outside == Outside::extrapolate);
  const auto picked = pick(place, all, wanted, mode_of<Element>(whole), whole.outside);
  if (whole.valid != nullptr && at == 0) {
    whole.valid[b * whole.valid_episode + t * whole.valid_target] = place.where == Where::within;
  }

  // And makes a vector of it.
  const auto row = static_cast<std::int64_t>(vectors * bytes);
  const auto source = source_of<NumberOf<Element>>(picked, shared.rows, row);
  store_global(whole.out + b * whole.out_episode + t * whole.out_target + at,
               vector_of<Element, bytes>(source, at, row, whole.blank));
}

// Launch.
template <class Element, class Time>
cudaError_t launch_brief(const TileWork& work, std::int64_t episodes, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(episodes * work.tiles);
  brief_kernel<Element, Time><<<blocks, brief_threads, 0, stream>>>(work);
  return cudaGetLastError();
}

}  // namespace ps::resampling
