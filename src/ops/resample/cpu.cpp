// The CPU's resample: all cores, each with wanted times of its own. From one to the next the place
// among the samples is looked for where it was last, so that times in order need no search.
#include "ops/resample/cpu.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "host/copy_past_caches.h"
#include "ops/resample/fill.h"
#include "penstock/base/units.h"
#include "penstock/host/parallel.h"

namespace ps::resampling {
namespace {

using detail::ResampleWork;
using detail::SegmentWork;
using detail::SensorWork;

constexpr std::size_t grain = 16 * 1024;       // elements; fewer are not worth waking a thread for
constexpr std::size_t stage_bytes = 16 * KiB;  // of rows that go past the caches, in the nearest

std::size_t last_level_cache() {
  const long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return bytes > 0 ? static_cast<std::size_t>(bytes) : 32 * MiB;
}

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

// A sensor's episode.
template <class T>
struct Source {
  Times<T> times;
  const std::byte* values = nullptr;
  std::int64_t hint = 0;
};

// One thread's part of the work.
template <class T>
class Range {
 public:
  Range(const ResampleWork& work, const RowKernels& rows)
      : work_(work), rows_(rows), size_(size_of(work.type)), fill_(fill_bits(work)) {}

  void enter(std::int64_t episode) {
    episode_ = episode;
    for (unsigned i = 0; i < work_.sensors; ++i) {
      const SensorWork& sensor = work_.sensor[i];
      const Episode samples = episode_of(sensor, episode);
      const std::int64_t first =
          episode * sensor.value_episode + samples.begin * sensor.value_sample;
      source_[i] = {times_of<T>(sensor, episode, samples),
                    static_cast<const std::byte*>(sensor.values) + first * size(), 0};
    }
  }

  // The row of wanted time `target`, to `row`.
  void make(std::int64_t target, std::byte* row) {
    const T t =
        static_cast<const T*>(work_.at)[episode_ * work_.at_episode + target * work_.at_target];
    const bool line = work_.outside == Outside::extrapolate;
    unsigned segment = 0;
    for (unsigned i = 0; i < work_.sensors; ++i) {
      Source<T>& source = source_[i];
      const Located at = locate(source.times, t, source.hint, line);
      source.hint = at.earlier;
      if (work_.valid != nullptr) {
        work_.valid[episode_ * work_.valid_episode + target * work_.valid_target +
                    i * work_.valid_sensor] = at.where == Where::within;
      }
      for (; segment < work_.segments && work_.segment[segment].sensor == i; ++segment) {
        const SegmentWork& part = work_.segment[segment];
        make_part(part, source, pick(at, source.times, t, part.mode, work_.outside),
                  row + part.out_column * size());
      }
    }
  }

 private:
  std::ptrdiff_t size() const { return static_cast<std::ptrdiff_t>(size_); }

  void make_part(const SegmentWork& part, const Source<T>& source, const Pick& pick,
                 std::byte* to) const {
    if (pick.action == Action::missing || pick.action == Action::fill) {
      const bool outside = pick.action == Action::fill;
      return fill_row(to, outside ? fill_.outside : fill_.missing, part.count, size_);
    }
    const SensorWork& sensor = work_.sensor[part.sensor];
    const std::int64_t stride = sensor.value_column;
    const auto sample = [&](std::int64_t i, std::int64_t column) {
      return source.values + (i * sensor.value_sample + (part.column + column) * stride) * size();
    };
    const bool copies = pick.action == Action::copy, contiguous = stride == 1 || part.count == 1;
    if (copies && contiguous) {
      std::memcpy(to, sample(pick.first, 0), static_cast<std::size_t>(part.count) * size_);
    } else if (copies) {
      gather(to, sample(pick.first, 0), stride, part.count, size_);
    } else {
      const auto blend = part.mode == Interpolation::slerp ? rows_.slerp : rows_.blend;
      if (contiguous) {
        return blend(to, sample(pick.first, 0), sample(pick.second, 0), pick.weight,
                     static_cast<std::size_t>(part.count));
      }
      constexpr std::int64_t most = 256;  // whole quaternions
      std::uint64_t first[most], second[most];
      for (std::int64_t column = 0; column < part.count; column += most) {
        const std::int64_t count = std::min(most, part.count - column);
        gather(first, sample(pick.first, column), stride, count, size_);
        gather(second, sample(pick.second, column), stride, count, size_);
        blend(to + column * size(), first, second, pick.weight, static_cast<std::size_t>(count));
      }
    }
  }

  const ResampleWork& work_;
  const RowKernels& rows_;
  std::size_t size_;
  FillBits fill_;
  std::int64_t episode_ = 0;
  std::array<Source<T>, detail::max_sensors> source_{};
};

template <class T>
void run_range(const ResampleWork& work, const RowKernels& rows, std::int64_t begin,
               std::int64_t end, bool past_caches) {
  const auto size = static_cast<std::int64_t>(size_of(work.type));
  const std::int64_t row_bytes = columns_of(work) * size;
  Range<T> range(work, rows);
  std::vector<std::byte> stage;
  std::int64_t most = 1;  // rows in the stage
  if (past_caches) {
    most = std::max<std::int64_t>(1, static_cast<std::int64_t>(stage_bytes) / row_bytes);
    stage.resize(static_cast<std::size_t>(most * row_bytes));
  }
  for (std::int64_t i = begin; i < end;) {
    const std::int64_t episode = i / work.targets, first = i % work.targets;
    const std::int64_t last = std::min(work.targets, first + end - i);
    range.enter(episode);
    const auto row = [&](std::int64_t target) {
      return static_cast<std::byte*>(work.out) +
             (episode * work.out_episode + target * work.out_target) * size;
    };
    for (std::int64_t target = first; target < last;) {
      if (!past_caches) {
        range.make(target, row(target));
        ++target;
        continue;
      }
      const std::int64_t count = std::min(most, last - target);
      for (std::int64_t k = 0; k < count; ++k) range.make(target + k, stage.data() + k * row_bytes);
      detail::copy_past_caches(row(target), stage.data(),
                               static_cast<std::size_t>(count * row_bytes));
      target += count;
    }
    i += last - first;
  }
}

void run(const ResampleWork& work) {
  static const std::size_t cache = last_level_cache();
  const RowKernels rows = row_kernels(work.type);
  const std::int64_t columns = columns_of(work), targets = work.episodes * work.targets;
  const bool adjacent = work.out_target == columns || work.targets == 1;
  const std::size_t bytes = static_cast<std::size_t>(columns * targets) * size_of(work.type);
  const bool past_caches = adjacent && columns > 0 && bytes > cache / 2;
  const std::size_t each =
      grain / static_cast<std::size_t>(std::clamp<std::int64_t>(columns, 1, grain));
  parallel_ranges(static_cast<std::size_t>(targets), each, [&](std::size_t begin, std::size_t end) {
    resample_range(work, rows, begin, end, past_caches);
  });
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
                    std::size_t end, bool past_caches) {
  with_time(work.time_type, [&](auto time) {
    run_range<decltype(time)>(work, rows, static_cast<std::int64_t>(begin),
                              static_cast<std::int64_t>(end), past_caches);
  });
}

}  // namespace ps::resampling

namespace ps::detail {

void resample_cpu(const ResampleWork& work, const Stream& stream) {
  stream.call([work] { resampling::run(work); });
}

}  // namespace ps::detail
