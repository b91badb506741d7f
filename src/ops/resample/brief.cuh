// A block has some targets of an episode so short that all of it comes into shared memory at once,
// rows and times: one trip to memory, where the others make a second one for the rows they found.
// Such a call is over before its instructions have all come from memory, so there are few.
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
  const detail::SensorWork& sensor = whole.sensor;
  const unsigned vectors = whole.strip.vectors, abreast = whole.strip.abreast;

  // Setup: which target and which vector of its row.
  const unsigned b = blockIdx.y, begin = blockIdx.x * work.tile;
  const unsigned i = whole.strip.by_vectors.divide(threadIdx.x);
  const unsigned t = begin + i, at = (threadIdx.x - i * vectors) * bytes;
  const bool makes = i < min(work.tile, whole.targets - begin);
  Time wanted{};
  if (makes) {
    wanted = static_cast<const Time*>(whole.at)[b * whole.at_episode + t * whole.at_target];
  }
  auto samples = static_cast<int>(sensor.samples);
  if (sensor.lengths != nullptr) {
    const std::int64_t own = device_length(sensor, sensor.lengths, b);
    samples = own < 0 || own > samples ? 0 : static_cast<int>(own);
  }
  __builtin_assume(samples <= brief_samples);

  // Rows, as many abreast as there are threads for, and times.
  const unsigned char* from = static_cast<const unsigned char*>(sensor.values) +
                              b * sensor.value_episode + i * sensor.value_sample + at;
  const std::int64_t next = abreast * sensor.value_sample;
  if (i < abreast) {
#pragma unroll 1
    for (unsigned s = i; s < static_cast<unsigned>(samples); s += abreast, from += next) {
      kit::cp_async<bytes>(shared.rows + (s * vectors * bytes + at), from);
    }
  }
  const Time* time = static_cast<const Time*>(sensor.times) + b * sensor.time_episode;
#pragma unroll 1
  for (auto s = static_cast<int>(threadIdx.x); s < samples; s += brief_threads) {
    kit::cp_async<sizeof(Time)>(shared.times + s, time + s * sensor.time_sample);
  }
  if (threadIdx.x == 0) shared.times[samples] = Near<Time>::latest;
  kit::cp_async_commit();
  kit::cp_async_wait<0>();
  __syncthreads();
  if (!makes) return;

  // A thread finds its target's samples, as those beside it do that make the same row.
  using Number = NumberOf<Element>;
  const Times<Time> times{shared.times, 1, samples};
  const auto made = find_pair<Number>(Near<Time>{shared.times, 0, samples, true}, times, wanted,
                                      mode_of<Element>(whole), whole.outside);
  if (whole.valid != nullptr && at == 0) {
    whole.valid[b * whole.valid_episode + t * whole.valid_target] = made.within;
  }

  // And makes a vector of it.
  const Pair<Number>& pair = made.pair;
  Vector<bytes> x;
  if (pair.is_row()) [[likely]] {
    const unsigned char* const rows = shared.rows + at;
    x = load<bytes>(rows + pair.first * (vectors * bytes));
    if constexpr (!std::is_same_v<Element, Moved>) {
      const Vector<bytes> y = load<bytes>(rows + pair.second * (vectors * bytes));
      if (pair.first != pair.second) x = blended_vector<Element>(x, y, pair.weight);
    }
  } else {
    x = repeated<bytes>(pair.first == Pair<Number>::fill ? whole.blank.fill : whole.blank.missing);
  }
  store_global(whole.out + b * whole.out_episode + t * whole.out_target + at, x);
}

// Launch.
template <class Element, class Time>
cudaError_t launch_brief(TileWork work, std::int64_t episodes, cudaStream_t stream) {
  work.whole.strip.abreast = brief_threads / work.whole.strip.vectors;
  const dim3 blocks(work.tiles, static_cast<unsigned>(episodes));
  brief_kernel<Element, Time><<<blocks, brief_threads, 0, stream>>>(work);
  return cudaGetLastError();
}

}  // namespace ps::resampling
