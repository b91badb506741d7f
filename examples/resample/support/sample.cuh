// What every rung computes: the samples around a wanted time, and elements between two. By the
// library's own formulas: bf16 in f32, f32 in f64.
#pragma once

#include <cmath>
#include <type_traits>

#include "ops/resample/element.cuh"
#include "ops/resample/formula.h"
#include "resample/support/work.h"

namespace ladder::resample {

using ps::resampling::NumberOf;
using Times = ps::resampling::Times<float>;

// The row of a sample, and how far from it to the next one: at 0 the row alone is the result. NaN
// where nothing is, of a wanted NaN or an episode without samples, and so are all results of it.
template <class Element>
struct Sample {
  unsigned row;
  NumberOf<Element> weight;

  // Whether there is a row to read, and whether the next one counts, too.
  __device__ bool exists() const { return weight >= 0; }
  __device__ bool blends() const { return weight > 0; }
  __device__ unsigned rows() const { return blends() ? 2 : exists() ? 1 : 0; }
};

// Of the episode's own samples. A length that cannot be is none, as in the library.
__device__ inline Times times_of(const Work& work, unsigned episode) {
  const unsigned own =
      work.lengths == nullptr ? work.samples : static_cast<unsigned>(work.lengths[episode]);
  return {work.times + std::size_t{episode} * work.samples, 1, own <= work.samples ? own : 0};
}

// For the time t of an episode that begins at row `begin`; `last`: of its samples the last that is
// not later than t, -1 where all are.
template <class Element>
__device__ inline Sample<Element> sample_after(const Times& times, unsigned begin, int last,
                                               float t) {
  using namespace ps::resampling;
  using Number = NumberOf<Element>;
  const Pick picked =
      pick(located(times, t, last, false), times, t, ps::Interpolation::linear, ps::Outside::clamp);
  const Number weight = picked.action == Action::blend  ? static_cast<Number>(picked.weight)
                        : picked.action == Action::copy ? Number{0}
                                                        : Number{NAN};
  return {begin + static_cast<unsigned>(picked.first), weight};
}

// One thread's own search, outwards from where the sample would be if samples and targets went in
// even steps.
template <class Element>
__device__ inline Sample<Element> find(const Work& work, unsigned target) {
  const unsigned episode = target / work.targets, number = target - episode * work.targets;
  const Times times = times_of(work, episode);
  const float t = work.at[target];
  const float share = static_cast<float>(number) / static_cast<float>(work.targets);
  const auto guess = static_cast<std::int64_t>(share * static_cast<float>(times.count));
  const std::int64_t hint = guess < times.count ? guess : times.count - 1;
  int last = -1;
  if (times.count > 0) {
    last = static_cast<int>(
        ps::resampling::last_of(times.count, hint, [&](std::int64_t i) { return times[i] <= t; }));
  }
  return sample_after<Element>(times, episode * work.samples, last, t);
}

template <class Element>
__device__ inline Element blended(Element x, Element y, NumberOf<Element> weight) {
  using Arithmetic = ps::resampling::Arithmetic<Element>;
  if (weight == 0) return x;  // bit by bit
  return Arithmetic::narrow(
      ps::resampling::blended(Arithmetic::widen(x), Arithmetic::widen(y), weight));
}

// A vector of them; of bf16 in pairs, which one instruction narrows.
template <class Element>
__device__ inline uint4 blended_vector(uint4 x, const uint4& y, NumberOf<Element> weight) {
  using Taken = std::conditional_t<std::is_same_v<Element, float>, float, __nv_bfloat162>;
  if (weight == 0) return x;
  auto* const first = reinterpret_cast<Taken*>(&x);
  const auto* const second = reinterpret_cast<const Taken*>(&y);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (std::is_same_v<Element, float>) {
      first[i] = blended(first[i], second[i], weight);
    } else {
      const float2 a = __bfloat1622float2(first[i]), b = __bfloat1622float2(second[i]);
      first[i] = __floats2bfloat162_rn(ps::resampling::blended(a.x, b.x, weight),
                                       ps::resampling::blended(a.y, b.y, weight));
    }
  }
  return x;
}

}  // namespace ladder::resample
