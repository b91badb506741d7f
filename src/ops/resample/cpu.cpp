// The CPU's resample: all cores, each with wanted times of its own. From one to the next the place
// among the samples is looked for where it was last, so that times in order need no search.
#include "ops/resample/cpu.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "ops/resample/fill.h"
#include "penstock/base/units.h"
#include "penstock/host/parallel.h"

namespace ps::resampling {
namespace {

using detail::ResampleWork;
using detail::SegmentWork;
using detail::SensorWork;

constexpr std::size_t grain = 16 * 1024;  // elements; fewer are not worth waking a thread for
constexpr std::int64_t line_bytes = 64;
constexpr std::int64_t ahead_bytes = 4 * KiB, most_ahead = 16;  // of rows that are planned
constexpr std::int64_t prefetched = 2 * KiB;  // of a row; the rest the CPU foresees

std::int64_t columns_of(const ResampleWork& work) {
  std::int64_t columns = 0;
  for (unsigned i = 0; i < work.segments; ++i) columns += work.segment[i].count;
  return columns;
}

template <class Element>
void gather(void* to, const void* from, std::int64_t stride, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    static_cast<Element*>(to)[i] = static_cast<const Element*>(from)[i * stride];
  }
}

// Strided elements, next to each other.
void gather(void* to, const void* from, std::int64_t stride, std::int64_t count, std::size_t size) {
  if (size == 1) return gather<std::uint8_t>(to, from, stride, count);
  if (size == 2) return gather<std::uint16_t>(to, from, stride, count);
  if (size == 4) return gather<std::uint32_t>(to, from, stride, count);
  gather<std::uint64_t>(to, from, stride, count);
}

void fill_row(void* to, std::uint64_t bits, std::int64_t count, std::size_t size) {
  if (size == 1)
    std::fill_n(static_cast<std::uint8_t*>(to), count, static_cast<std::uint8_t>(bits));
  if (size == 2) {
    std::fill_n(static_cast<std::uint16_t*>(to), count, static_cast<std::uint16_t>(bits));
  }
  if (size == 4) {
    std::fill_n(static_cast<std::uint32_t*>(to), count, static_cast<std::uint32_t>(bits));
  }
  if (size == 8) std::fill_n(static_cast<std::uint64_t*>(to), count, bits);
}

// One wanted time of an episode.
struct Target {
  std::int64_t episode = 0, index = 0;

  void advance(std::int64_t targets) {
    if (++index < targets) return;
    index = 0;
    ++episode;
  }
};

// A better place to look for t from, a few samples ahead, without a branch that depends on it.
template <class T>
std::int64_t near_hint(const Times<T>& times, T t, std::int64_t hint) {
  if (hint + 3 >= times.count) return hint;
  const auto holds = [&](std::int64_t i) { return std::int64_t{times[i] <= t}; };
  return hint + holds(hint + 1) + holds(hint + 2) + holds(hint + 3);
}

// What is done for a segment of one row.
struct Step {
  Action action = Action::missing;
  const std::byte *first = nullptr, *second = nullptr;
  double weight = 0;
};

// One thread's part of the work: steps are planned some rows before they are made, and what they
// read is on its way to the cache meanwhile.
template <class T>
class Range {
 public:
  Range(const ResampleWork& work, const RowKernels& rows, Target begin)
      : work_(work), rows_(rows), size_(size_of(work.type)), fill_(fill_bits(work)), next_(begin) {
    enter();
  }

  // The steps of the next wanted time, one a segment.
  void plan(Step* steps) {
    const T t = static_cast<const T*>(
        work_.at)[next_.episode * work_.at_episode + next_.index * work_.at_target];
    const bool line = work_.outside == Outside::extrapolate;
    unsigned segment = 0;
    for (unsigned i = 0; i < work_.sensors; ++i) {
      Source& source = source_[i];
      const Located at = locate(source.times, t, near_hint(source.times, t, source.hint), line);
      source.hint = at.earlier;
      if (work_.valid != nullptr) {
        work_.valid[next_.episode * work_.valid_episode + next_.index * work_.valid_target +
                    i * work_.valid_sensor] = at.where == Where::within;
      }
      for (; segment < work_.segments && work_.segment[segment].sensor == i; ++segment) {
        const Interpolation mode = work_.segment[segment].mode;
        const Pick picked = pick(at, source.times, t, mode, work_.outside);
        steps[segment] = step_of(work_.segment[segment], source.values, picked);
      }
    }
    const std::int64_t episode = next_.episode;
    next_.advance(work_.targets);
    if (next_.episode != episode && next_.episode < work_.episodes) enter();
  }

  void make(const Step* steps, std::byte* row) const {
    for (unsigned i = 0; i < work_.segments; ++i) {
      const SegmentWork& part = work_.segment[i];
      make_part(part, steps[i], row + part.out_column * size());
    }
  }

 private:
  struct Source {
    Times<T> times;
    const std::byte* values = nullptr;  // of the episode's first sample
    std::int64_t hint = 0;
  };

  std::int64_t size() const { return static_cast<std::int64_t>(size_); }

  void enter() {
    for (unsigned i = 0; i < work_.sensors; ++i) {
      const SensorWork& sensor = work_.sensor[i];
      const Episode samples = episode_of(sensor, next_.episode);
      const std::int64_t first =
          next_.episode * sensor.value_episode + samples.begin * sensor.value_sample;
      source_[i] = {times_of<T>(sensor, next_.episode, samples),
                    static_cast<const std::byte*>(sensor.values) + first * size(), 0};
    }
  }

  Step step_of(const SegmentWork& part, const std::byte* values, const Pick& picked) const {
    const SensorWork& sensor = work_.sensor[part.sensor];
    const auto sample = [&](std::int64_t i) {
      return values + (i * sensor.value_sample + part.column * sensor.value_column) * size();
    };
    if (picked.action == Action::missing || picked.action == Action::fill) return {picked.action};
    const Step step{picked.action, sample(picked.first), sample(picked.second), picked.weight};
    if (sensor.value_column == 1) {
      const std::int64_t bytes = std::min(part.count * size(), prefetched);
      for (std::int64_t i = 0; i < bytes; i += line_bytes) __builtin_prefetch(step.first + i);
      if (step.action == Action::blend) {
        for (std::int64_t i = 0; i < bytes; i += line_bytes) __builtin_prefetch(step.second + i);
      }
    }
    return step;
  }

  void make_part(const SegmentWork& part, const Step& step, std::byte* to) const {
    const std::int64_t stride = work_.sensor[part.sensor].value_column;
    const bool contiguous = stride == 1 || part.count == 1;
    if (step.action == Action::missing || step.action == Action::fill) {
      const bool outside = step.action == Action::fill;
      fill_row(to, outside ? fill_.outside : fill_.missing, part.count, size_);
    } else if (step.action == Action::copy && contiguous) {
      std::memcpy(to, step.first, static_cast<std::size_t>(part.count) * size_);
    } else if (step.action == Action::copy) {
      gather(to, step.first, stride, part.count, size_);
    } else {
      const auto blend = part.mode == Interpolation::slerp ? rows_.slerp : rows_.blend;
      if (contiguous) {
        return blend(to, step.first, step.second, step.weight,
                     static_cast<std::size_t>(part.count));
      }
      constexpr std::int64_t most = 256;  // whole quaternions
      std::uint64_t first[most], second[most];
      for (std::int64_t column = 0; column < part.count; column += most) {
        const std::int64_t count = std::min(most, part.count - column);
        gather(first, step.first + column * stride * size(), stride, count, size_);
        gather(second, step.second + column * stride * size(), stride, count, size_);
        blend(to + column * size(), first, second, step.weight, static_cast<std::size_t>(count));
      }
    }
  }

  const ResampleWork& work_;
  const RowKernels& rows_;
  std::size_t size_;
  FillBits fill_;
  Target next_;
  std::array<Source, detail::max_sensors> source_{};
};

template <class T>
void run_range(const ResampleWork& work, const RowKernels& rows, std::int64_t begin,
               std::int64_t end) {
  const auto size = static_cast<std::int64_t>(size_of(work.type));
  const std::int64_t row_bytes = columns_of(work) * size;
  const std::int64_t ahead =
      std::clamp<std::int64_t>(ahead_bytes / std::max<std::int64_t>(1, row_bytes), 2, most_ahead);
  std::vector<Step> steps(static_cast<std::size_t>(ahead) * work.segments);

  Target target{begin / work.targets, begin % work.targets};
  Range<T> range(work, rows, target);
  Step* slot = steps.data();  // of the row that is made next; goes round
  for (std::int64_t i = begin; i < std::min(begin + ahead, end); ++i) {
    range.plan(steps.data() + (i - begin) * work.segments);
  }
  for (std::int64_t i = begin; i < end; ++i) {
    const std::int64_t row = target.episode * work.out_episode + target.index * work.out_target;
    range.make(slot, static_cast<std::byte*>(work.out) + row * size);
    target.advance(work.targets);
    if (i + ahead < end) range.plan(slot);
    slot += work.segments;
    if (slot == steps.data() + steps.size()) slot = steps.data();
  }
}

void run(const ResampleWork& work) {
  const RowKernels rows = row_kernels(work.type);
  const auto columns = static_cast<std::size_t>(columns_of(work));
  const std::size_t each = grain / std::clamp<std::size_t>(columns, 1, grain);
  parallel_ranges(
      static_cast<std::size_t>(work.episodes * work.targets), each,
      [&](std::size_t begin, std::size_t end) { resample_range(work, rows, begin, end); });
}

}  // namespace

std::int64_t length_at(const SensorWork& sensor, std::int64_t i) {
  const void* from = sensor.lengths != nullptr ? sensor.lengths : sensor.offsets;
  i *= sensor.length_stride;
  return sensor.wide_lengths ? static_cast<const std::int64_t*>(from)[i]
                             : std::int64_t{static_cast<const std::int32_t*>(from)[i]};
}

Episode episode_of(const SensorWork& sensor, std::int64_t episode) {
  if (sensor.lengths != nullptr) {
    const std::int64_t count = length_at(sensor, episode);
    const bool wrong = count < 0 || count > sensor.samples;
    return {0, wrong ? 0 : count, wrong};
  }
  if (sensor.offsets == nullptr) return {0, sensor.samples, false};
  const std::int64_t begin = length_at(sensor, episode), end = length_at(sensor, episode + 1);
  if (begin < 0 || end < begin || end > sensor.samples) return {0, 0, true};
  return {begin, end - begin, false};
}

void resample_range(const ResampleWork& work, const RowKernels& rows, std::size_t begin,
                    std::size_t end) {
  with_time(work.time_type, [&](auto time) {
    run_range<decltype(time)>(work, rows, static_cast<std::int64_t>(begin),
                              static_cast<std::int64_t>(end));
  });
}

}  // namespace ps::resampling

namespace ps::detail {

void resample_cpu(const ResampleWork& work, const Stream& stream) {
  stream.call([work] { resampling::run(work); });
}

}  // namespace ps::detail
