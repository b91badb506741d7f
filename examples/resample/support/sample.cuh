// What every rung computes: the samples around a wanted time, and numbers between two of bf16. By
// the library's own formulas.
#pragma once

#include <cuda_bf16.h>

#include <cmath>

#include "ops/resample/formula.h"
#include "resample/support/work.h"

namespace ladder::resample {

using Times = ps::resampling::Times<float>;

// The row of a sample, and how far from it to the next one: at 0 the row alone is the result. NaN
// where nothing is, of a wanted NaN or an episode without samples, and so are all results of it.
struct Sample {
  unsigned row;
  float weight;

  // Whether the next row counts, too.
  __device__ bool blends() const { return weight > 0; }
};

__device__ inline Times times_of(const Work& work, unsigned episode) {
  return {work.times + std::size_t{episode} * work.samples, 1, work.samples};
}

// For the time t of an episode that begins at row `begin`; `last`: of its samples the last that is
// not later than t, -1 where all are.
__device__ inline Sample sample_after(const Times& times, unsigned begin, int last, float t) {
  using namespace ps::resampling;
  const Pick picked =
      pick(located(times, t, last, false), times, t, ps::Interpolation::linear, ps::Outside::clamp);
  const float weight = picked.action == Action::blend  ? static_cast<float>(picked.weight)
                       : picked.action == Action::copy ? 0.0F
                                                       : NAN;
  return {begin + static_cast<unsigned>(picked.first), weight};
}

// One thread's own search in an episode that has samples, outwards from where the sample would be
// if samples and targets went in even steps.
__device__ inline Sample find(const Work& work, unsigned target) {
  const unsigned episode = target / work.targets, number = target - episode * work.targets;
  const Times times = times_of(work, episode);
  const float t = work.at[target];
  const float share = static_cast<float>(number) / static_cast<float>(work.targets);
  const auto guess = static_cast<std::int64_t>(share * static_cast<float>(work.samples));
  const std::int64_t hint = guess < times.count ? guess : times.count - 1;
  const auto last = static_cast<int>(
      ps::resampling::last_of(times.count, hint, [&](std::int64_t i) { return times[i] <= t; }));
  return sample_after(times, episode * work.samples, last, t);
}

__device__ inline __nv_bfloat16 blended(__nv_bfloat16 x, __nv_bfloat16 y, float weight) {
  if (weight == 0) return x;  // bit by bit
  return __float2bfloat16_rn(
      ps::resampling::blended(__bfloat162float(x), __bfloat162float(y), weight));
}

// Eight of them.
__device__ inline uint4 blended(uint4 x, const uint4& y, float weight) {
  if (weight == 0) return x;
  auto* const first = reinterpret_cast<__nv_bfloat162*>(&x);
  const auto* const second = reinterpret_cast<const __nv_bfloat162*>(&y);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 a = __bfloat1622float2(first[i]), b = __bfloat1622float2(second[i]);
    first[i] = __floats2bfloat162_rn(ps::resampling::blended(a.x, b.x, weight),
                                     ps::resampling::blended(a.y, b.y, weight));
  }
  return x;
}

}  // namespace ladder::resample
