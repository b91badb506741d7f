// Which samples the target times take, found for some rows at a time. Of times in order, the next
// has its place a few samples after that of the last: they are counted, without a branch that
// depends on how many they are.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "ops/resample/cpu.h"

namespace ps::resampling {

// What is done for a segment of one row.
struct Step {
  Action action = Action::missing;
  const std::byte *first = nullptr, *second = nullptr;  // of the episode, whatever is done
  double weight = 0;
};

// Some rows that follow each other, and the steps of each segment for them.
struct Plan {
  static constexpr std::int64_t most = 8;
  explicit Plan(unsigned segments) : steps(segments) {}

  std::int64_t rows = 0;
  std::array<std::byte*, most> out{};  // where each row begins
  std::vector<std::array<Step, most>> steps;
};

// Times that are looked at together.
template <class T>
inline constexpr std::int64_t few = sizeof(T) == 4 ? 16 : 8;

// How many of the first few times are up to t, which those are that come first; of times that
// decrease, some number of them.
template <class T>
inline int passed(const T* times, T t) {
  int count = 0;
  for (std::int64_t i = 0; i < few<T>; ++i) count += times[i] <= t ? 1 : 0;
  return count;
}

#if defined(__SSE2__)
inline __m128i up_to(const float* times, __m128 t) {
  return _mm_castps_si128(_mm_cmple_ps(_mm_loadu_ps(times), t));
}
inline __m128i up_to(const double* times, __m128d t) {
  const __m128 low = _mm_castpd_ps(_mm_cmple_pd(_mm_loadu_pd(times), t));
  const __m128 high = _mm_castpd_ps(_mm_cmple_pd(_mm_loadu_pd(times + 2), t));
  return _mm_castps_si128(_mm_shuffle_ps(low, high, _MM_SHUFFLE(2, 0, 2, 0)));
}
inline int ones_first(__m128i bytes) {
  return __builtin_ctz(~static_cast<unsigned>(_mm_movemask_epi8(bytes)));
}
inline int passed(const float* times, float t) {
  const __m128 all = _mm_set1_ps(t);
  const __m128i low = _mm_packs_epi32(up_to(times, all), up_to(times + 4, all));
  const __m128i high = _mm_packs_epi32(up_to(times + 8, all), up_to(times + 12, all));
  return ones_first(_mm_packs_epi16(low, high));
}
inline int passed(const double* times, double t) {
  const __m128d all = _mm_set1_pd(t);
  const __m128i both = _mm_packs_epi32(up_to(times, all), up_to(times + 4, all));
  return ones_first(_mm_packs_epi16(both, _mm_setzero_si128()));
}
#endif

// The samples around a target time. weight > 0: it lies between them, so far from the earlier; else
// nothing is known but `at`.
struct Found {
  Located at;
  double weight = 0;
};

// Looked for from `hint` on, a sample of the episode.
template <class T>
inline Found find(const Times<T>& times, T t, std::int64_t hint, bool line) {
  if (times.count >= few<T> && times.stride == 1) {
    const std::int64_t base = std::min(hint, times.count - few<T>);
    const T* near = times.first + base;
    const int count = passed(near, t);
    if (count > 0 && count < few<T>) {
      const std::int64_t earlier = base + count - 1;
      const T a = near[count - 1], b = near[count];
      const double weight = weight_of(a, b, t);
      if (weight > 0 && t < b) return {{Where::within, earlier, earlier + 1}, weight};
    }
    hint = base + std::max(count - 1, 0);
  }
  return {locate(times, t, hint, line), 0};
}

// Plans the rows of target times [begin, end), episodes one after the other.
template <class T>
class Planner {
 public:
  Planner(const detail::ResampleWork& work, std::int64_t begin, std::int64_t end)
      : work_(work),
        size_(static_cast<std::int64_t>(size_of(work.type))),
        left_(end - begin),
        episode_(begin / work.targets),
        target_(begin % work.targets) {
    if (left_ > 0) enter();
  }

  // At most `rows` of the next ones; none where none are left.
  void fill(Plan& plan, std::int64_t rows) {
    plan.rows = 0;
    while (left_ > 0 && plan.rows < rows) {
      const std::int64_t run = std::min({left_, rows - plan.rows, work_.targets - target_});
      plan_run(plan, run);
      plan.rows += run;
      left_ -= run;
      target_ += run;
      if (target_ < work_.targets) continue;
      target_ = 0;
      ++episode_;
      if (left_ > 0) enter();
    }
  }

 private:
  struct Source {
    Times<T> times;
    const std::byte* values = nullptr;              // of the episode's first sample
    std::int64_t sample = 0, column = 0, hint = 0;  // the strides in bytes
  };

  void enter() {
    for (unsigned i = 0; i < work_.sensors; ++i) {
      const detail::SensorWork& sensor = work_.sensor[i];
      const Episode samples = episode_of(sensor, episode_);
      const std::int64_t first =
          episode_ * sensor.value_episode + samples.begin * sensor.value_sample;
      source_[i] = {times_of<T>(sensor, episode_, samples),
                    static_cast<const std::byte*>(sensor.values) + first * size_,
                    sensor.value_sample * size_, sensor.value_column * size_, 0};
    }
  }

  // Rows of one episode.
  void plan_run(Plan& plan, std::int64_t run) {
    auto* const out = static_cast<std::byte*>(work_.out);
    for (std::int64_t k = 0; k < run; ++k) {
      const std::int64_t row = episode_ * work_.out_episode + (target_ + k) * work_.out_target;
      plan.out[plan.rows + k] = out + row * size_;
    }
    unsigned segment = 0;
    for (unsigned i = 0; i < work_.sensors; ++i) {
      find_run(i, run);
      for (; segment < work_.segments && work_.segment[segment].sensor == i; ++segment) {
        step_run(work_.segment[segment], plan.steps[segment].data() + plan.rows, run);
      }
    }
  }

  T wanted(std::int64_t k) const {
    return static_cast<const T*>(
        work_.at)[episode_ * work_.at_episode + (target_ + k) * work_.at_target];
  }

  void find_run(unsigned sensor, std::int64_t run) {
    const Times<T> times = source_[sensor].times;
    const bool line = work_.outside == Outside::extrapolate;
    std::int64_t hint = source_[sensor].hint;
    for (std::int64_t k = 0; k < run; ++k) {
      found_[k] = find(times, wanted(k), hint, line);
      hint = found_[k].at.earlier;
    }
    source_[sensor].hint = hint;
    if (work_.valid == nullptr) return;
    bool* const valid = work_.valid + episode_ * work_.valid_episode + sensor * work_.valid_sensor;
    for (std::int64_t k = 0; k < run; ++k) {
      valid[(target_ + k) * work_.valid_target] = found_[k].at.where == Where::within;
    }
  }

  void step_run(const detail::SegmentWork& part, Step* steps, std::int64_t run) const {
    const Source& source = source_[part.sensor];
    const std::byte* const values = source.values + part.column * source.column;
    const bool blends = part.mode == Interpolation::linear || part.mode == Interpolation::slerp;
    for (std::int64_t k = 0; k < run; ++k) {
      const Found& found = found_[k];
      Pick picked = blends && found.weight > 0
                        ? Pick{Action::blend, found.at.earlier, found.at.later, found.weight}
                        : pick(found.at, source.times, wanted(k), part.mode, work_.outside);
      // So near to the sample that f32, which 16-bit types are computed in, sees no difference.
      if (size_ == 2 && static_cast<float>(picked.weight) == 0 && picked.action == Action::blend) {
        picked.action = Action::copy;
      }
      steps[k] = {picked.action, values + picked.first * source.sample,
                  values + picked.second * source.sample, picked.weight};
    }
  }

  const detail::ResampleWork& work_;
  std::int64_t size_, left_, episode_, target_;
  std::array<Source, detail::max_sensors> source_{};
  std::array<Found, Plan::most> found_{};
};

}  // namespace ps::resampling
