// The CPU's resample: all cores, each with target times of its own. From one to the next the place
// among the samples is looked for where it was last, so that times in order need no search.
#include "ops/resample/cpu.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/cache_size.h"
#include "ops/resample/fill.h"
#include "ops/resample/plan.h"
#include "penstock/base/units.h"
#include "penstock/host/parallel.h"

namespace ps::resampling {
namespace {

using detail::ResampleWork;
using detail::SegmentWork;
using detail::SensorWork;

constexpr std::size_t grain = 16 * 1024;  // elements; fewer are not worth waking a thread for
constexpr std::int64_t plan_bytes = 16 * KiB, ahead_bytes = 4 * KiB;  // of rows

std::int64_t columns_of(const ResampleWork& work) {
  std::int64_t columns = 0;
  for (unsigned i = 0; i < work.segments; ++i) columns += work.segment[i].count;
  return columns;
}

// Whether rows pass by the caches: right for results that are larger than these, where every
// segment of every row begins and ends as past_alignment has it.
bool goes_past(const ResampleWork& work) {
  static const std::size_t reported = detail::last_level_cache_of_core();
  const std::size_t cache = reported > 0 ? reported : 32 * MiB;
  const auto size = static_cast<std::int64_t>(size_of(work.type));
  const std::int64_t bytes = work.episodes * work.targets * columns_of(work) * size;
  std::uintptr_t odd = reinterpret_cast<std::uintptr_t>(work.out) |
                       static_cast<std::uintptr_t>((work.out_episode | work.out_target) * size);
  for (unsigned i = 0; i < work.segments; ++i) {
    odd |= static_cast<std::uintptr_t>((work.segment[i].out_column | work.segment[i].count) * size);
  }
  return std::cmp_greater(bytes, cache) && odd % past_alignment == 0;
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
  if (size == 1) {
    std::fill_n(static_cast<std::uint8_t*>(to), count, static_cast<std::uint8_t>(bits));
  }
  if (size == 2) {
    std::fill_n(static_cast<std::uint16_t*>(to), count, static_cast<std::uint16_t>(bits));
  }
  if (size == 4) {
    std::fill_n(static_cast<std::uint32_t*>(to), count, static_cast<std::uint32_t>(bits));
  }
  if (size == 8) std::fill_n(static_cast<std::uint64_t*>(to), count, bits);
}

// One thread's part of the work. A plan is made before the rows of the one before it, and what
// rows soon read is on its way to the cache meanwhile.
template <class T>
class Range {
 public:
  Range(const ResampleWork& work, const RowKernels& rows)
      : work_(work),
        rows_(rows),
        size_(size_of(work.type)),
        fill_(fill_bits(work)),
        past_(rows.blend_past != nullptr && goes_past(work)) {
    const std::int64_t row_bytes = std::max<std::int64_t>(1, columns_of(work) * size());
    planned_ = std::clamp<std::int64_t>(plan_bytes / row_bytes, 2, Plan::most);
    ahead_ = std::clamp<std::int64_t>(ahead_bytes / row_bytes, 1, planned_);
  }

  void run(std::int64_t begin, std::int64_t end) const {
    Planner<T> planner(work_, begin, end);
    Plan plans[2] = {Plan(work_.segments), Plan(work_.segments)};
    planner.fill(plans[0], planned_);
    for (std::size_t i = 0; plans[i].rows > 0; i = 1 - i) {
      planner.fill(plans[1 - i], planned_);
      for (unsigned segment = 0; segment < work_.segments; ++segment) {
        make(segment, plans[i], plans[1 - i]);
      }
    }
    if (past_) rows_.settle();
  }

 private:
  std::int64_t size() const { return static_cast<std::int64_t>(size_); }

  // A segment of the rows of a plan.
  void make(unsigned segment, const Plan& plan, const Plan& next) const {
    const SegmentWork& part = work_.segment[segment];
    const auto &steps = plan.steps[segment], &later = next.steps[segment];
    for (std::int64_t k = 0; k < plan.rows; ++k) {
      const std::int64_t coming = k + ahead_;
      const Step& soon = coming < plan.rows               ? steps[coming]
                         : coming - plan.rows < next.rows ? later[coming - plan.rows]
                                                          : steps[k];
      make_part(part, steps[k], soon, plan.out[k] + part.out_column * size());
    }
  }

  void make_part(const SegmentWork& part, const Step& step, const Step& soon, std::byte* to) const {
    const std::int64_t stride = work_.sensor[part.sensor].value_column;
    const bool contiguous = stride == 1 || part.count == 1;
    const auto count = static_cast<std::size_t>(part.count);
    if (step.action == Action::missing || step.action == Action::fill) {
      const bool outside = step.action == Action::fill;
      fill_row(to, outside ? fill_.outside : fill_.missing, part.count, size_);
    } else if (step.action == Action::copy && contiguous) {
      std::memcpy(to, step.first, count * size_);
    } else if (step.action == Action::copy) {
      gather(to, step.first, stride, part.count, size_);
    } else {
      const auto linear = past_ && contiguous ? rows_.blend_past : rows_.blend;
      const auto blend = part.mode == Interpolation::slerp ? rows_.slerp : linear;
      if (contiguous) {
        return blend({to, step.first, step.second, step.weight, soon.first, soon.second}, count);
      }
      constexpr std::int64_t most = 256;  // whole quaternions
      std::uint64_t first[most], second[most];
      for (std::int64_t column = 0; column < part.count; column += most) {
        const std::int64_t some = std::min(most, part.count - column);
        gather(first, step.first + column * stride * size(), stride, some, size_);
        gather(second, step.second + column * stride * size(), stride, some, size_);
        blend({to + column * size(), first, second, step.weight, first, second},
              static_cast<std::size_t>(some));
      }
    }
  }

  const ResampleWork& work_;
  const RowKernels& rows_;
  std::size_t size_;
  FillBits fill_;
  bool past_;
  std::int64_t planned_ = 0, ahead_ = 0;
};

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
    Range<decltype(time)>(work, rows)
        .run(static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end));
  });
}

}  // namespace ps::resampling

namespace ps::detail {

void resample_cpu(const ResampleWork& work, const Stream& stream) {
  stream.call([work] { resampling::run(work); });
}

}  // namespace ps::detail
