#include "ops/resample/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "ops/arguments.h"
#include "penstock/base/error.h"

namespace ps::resampling {
namespace {

using detail::check_apart;
using detail::check_distinct_elements;
using detail::check_memory;
using detail::check_same_type;
using detail::check_shape;
using detail::check_type;
using detail::described;
using detail::given;
using detail::Named;
using detail::ResampleWork;
using detail::SegmentWork;
using detail::SensorWork;
using detail::step;
using detail::throw_invalid;

// The views of one sensor, named as the user wrote them.
struct SensorViews {
  Named values, times, lengths, offsets;

  bool ragged() const { return given(offsets.view); }
  std::array<Named, 4> all() const { return {values, times, lengths, offsets}; }
};

SensorViews views_of(const std::vector<Sensor>& sensors, std::size_t number) {
  const Sensor& sensor = sensors[number];
  const auto named = [&](std::string_view argument, const TensorView& view) {
    return Named{argument, view, "sensors", static_cast<int>(number)};
  };
  return {named("values", sensor.values), named("times", sensor.times),
          named("lengths", sensor.lengths), named("offsets", sensor.offsets)};
}

struct Sizes {
  std::int64_t episodes = 0, samples = 0, columns = 0;
};

Sizes checked_sizes(const SensorViews& views) {
  const TensorView &values = views.values.view, &offsets = views.offsets.view;
  if (views.ragged() && given(views.lengths.view)) {
    throw_invalid(views.lengths.name(), "no lengths when offsets are given",
                  views.lengths.view.describe());
  }
  if (!views.ragged()) {
    if (values.rank() != 3) {
      throw_invalid(views.values.name(), "shape (B, S, D): episodes, samples, columns",
                    described(values));
    }
    return {values.extent(0), values.extent(1), values.extent(2)};
  }
  check_type(views.offsets, {DType::i32, DType::i64});
  if (offsets.rank() != 1 || offsets.extent(0) < 1) {
    throw_invalid(views.offsets.name(),
                  "shape (B + 1): the first sample of each episode, then the end of the last one",
                  offsets.describe());
  }
  if (values.rank() != 2) {
    throw_invalid(views.values.name(), "shape (N, D) when offsets are given: samples, columns",
                  described(values));
  }
  return {offsets.extent(0) - 1, values.extent(0), values.extent(1)};
}

SensorWork checked_sensor(const SensorViews& views, const Sizes& sizes, const Device& device) {
  const TensorView &values = views.values.view, &times = views.times.view;
  SensorWork work{.values = values.data(), .times = times.data(), .samples = sizes.samples};
  check_type(views.times, {DType::f32, DType::f64, DType::i64});
  if (views.ragged() || times.rank() != 2) {
    check_shape(views.times, {sizes.samples}, "one time a sample");
  } else {
    check_shape(views.times, {sizes.episodes, sizes.samples}, "one time a sample");
    work.time_episode = step(times, 0);
  }
  work.time_sample = step(times, times.rank() - 1);
  if (!views.ragged()) work.value_episode = step(values, 0);
  work.value_sample = step(values, values.rank() - 2);
  work.value_column = step(values, values.rank() - 1);
  if (given(views.lengths.view)) {
    check_type(views.lengths, {DType::i32, DType::i64});
    check_shape(views.lengths, {sizes.episodes}, "one length an episode");
    work.lengths = views.lengths.view.data();
  }
  if (views.ragged()) work.offsets = views.offsets.view.data();
  const TensorView& which = views.ragged() ? views.offsets.view : views.lengths.view;
  work.length_stride = step(which, 0);
  work.wide_lengths = which.dtype() == DType::i64;
  for (const Named& each : views.all()) check_memory(each, device);
  return work;
}

// What has a mode: a sensor, or a range of its columns. In words for an error only.
struct Owner {
  std::size_t sensor;
  std::optional<std::size_t> range{};

  std::string name() const {
    const std::string whole = fmt::format("sensors[{}]", sensor);
    return range ? fmt::format("{}.columns[{}]", whole, *range) : whole;
  }
};

void check_mode(const Owner& owner, Interpolation mode, Quaternion order) {
  if (mode > Interpolation::slerp) {
    throw_invalid(owner.name() + ".mode", "linear, nearest, previous, next or slerp",
                  std::to_string(static_cast<int>(mode)));
  }
  if (order > Quaternion::wxyz) {
    throw_invalid(owner.name() + ".order", "xyzw or wxyz", std::to_string(static_cast<int>(order)));
  }
}

// That columns [begin, end) of a type may have a mode.
void check_fits(const Owner& owner, Interpolation mode, DType type, std::int64_t begin,
                std::int64_t end) {
  const bool blends = mode == Interpolation::linear || mode == Interpolation::slerp;
  const auto argument = [&] { return owner.range ? owner.name() : owner.name() + ".mode"; };
  if (blends && !is_floating(type)) {
    throw_invalid(argument(),
                  fmt::format("nearest, previous or next for elements of type {}", name(type)),
                  mode == Interpolation::linear ? "linear" : "slerp");
  }
  if (mode == Interpolation::slerp && (end - begin) % 4 != 0) {
    throw_invalid(argument(),
                  "a number of columns that is a multiple of 4 for slerp (whole quaternions)",
                  fmt::format("columns {} to {}", begin, end));
  }
}

// Appends columns [begin, end) of the work's last sensor, to the last segment where that goes on.
void append(ResampleWork& work, Columns range, std::int64_t out_column) {
  if (range.begin == range.end) return;
  const unsigned sensor = work.sensors - 1;
  if (work.segments > 0) {
    SegmentWork& last = work.segment[work.segments - 1];
    const bool same_order = range.mode != Interpolation::slerp || last.order == range.order;
    if (last.sensor == sensor && last.mode == range.mode && same_order) {
      last.count += range.end - range.begin;
      return;
    }
  }
  work.segment[work.segments++] = {.sensor = sensor,
                                   .mode = range.mode,
                                   .order = range.order,
                                   .column = range.begin,
                                   .count = range.end - range.begin,
                                   .out_column = out_column + range.begin};
}

// The segments of the work's last sensor, which fills columns of `out` from `out_column` on.
void append_segments(ResampleWork& work, const Sensor& sensor, std::int64_t columns,
                     std::int64_t out_column) {
  const Owner self{work.sensors - 1};
  check_mode(self, sensor.mode, sensor.order);
  std::array<std::size_t, detail::max_ranges> order{};  // of the ranges that have columns
  std::size_t count = 0;
  for (std::size_t i = 0; i < sensor.columns.size(); ++i) {
    const Columns& range = sensor.columns[i];
    const Owner part{self.sensor, i};
    if (range.begin < 0 || range.end < range.begin || range.end > columns) {
      throw_invalid(part.name(), fmt::format("a range within columns 0 to {}", columns),
                    fmt::format("{} to {}", range.begin, range.end));
    }
    check_mode(part, range.mode, range.order);
    if (range.begin == range.end) continue;
    check_fits(part, range.mode, work.type, range.begin, range.end);
    order.at(count++) = i;
  }
  const std::span by_column(order.data(), count);
  std::ranges::sort(by_column, {},
                    [&](std::size_t i) { return std::pair(sensor.columns[i].begin, i); });
  std::int64_t done = 0;
  std::size_t before = 0;
  const auto append_default = [&](std::int64_t end) {
    if (end == done) return;
    check_fits(self, sensor.mode, work.type, done, end);
    append(work, {done, end, sensor.mode, sensor.order}, out_column);
  };
  for (const std::size_t i : by_column) {
    const Columns& range = sensor.columns[i];
    if (range.begin < done) {
      const Columns& other = sensor.columns[before];
      throw_invalid(Owner{self.sensor, i}.name(),
                    fmt::format("columns that do not overlap those of columns[{}], {} to {}",
                                before, other.begin, other.end),
                    fmt::format("{} to {}", range.begin, range.end));
    }
    append_default(range.begin);
    append(work, range, out_column);
    done = range.end;
    before = i;
  }
  append_default(columns);
}

void check_fill(double fill, DType type, Outside outside) {
  if (is_floating(type) || (std::isnan(fill) && outside != Outside::fill)) return;
  double low = 0, high = 1;  // of boolean
  if (type == DType::u8) high = 255;
  if (type == DType::i32) low = -0x1p31, high = 0x1p31 - 1;
  if (type == DType::i64) low = -0x1p63, high = 0x1p63 - 1024;  // the last f64 below the end
  if (fill >= low && fill <= high && std::trunc(fill) == fill) return;
  throw_invalid("fill", fmt::format("a number that {} can represent", name(type)),
                fmt::format("{}", fill));
}

void check_outside(Outside outside) {
  if (outside <= Outside::error) return;
  throw_invalid("outside", "clamp, fill, extrapolate or error",
                std::to_string(static_cast<int>(outside)));
}

// Wanted times, and what is made of them.
void take_at(ResampleWork& work, const Named& at, const Named& times, const Device& device) {
  check_same_type(at, times);
  if (at.view.rank() != 1 && at.view.rank() != 2) {
    throw_invalid(at.name(), "shape (B, T) or (T): episodes, target times", at.view.describe());
  }
  work.targets = at.view.extent(at.view.rank() - 1);
  if (at.view.rank() == 2) {
    check_shape(at, {work.episodes, work.targets}, "episodes, target times");
    work.at_episode = step(at.view, 0);
  }
  work.at = at.view.data();
  work.at_target = step(at.view, at.view.rank() - 1);
  work.time_type = at.view.dtype();
  check_memory(at, device);
}

void take_rows(ResampleWork& work, const Named& rows, std::int64_t columns, const Device& device) {
  check_shape(rows, {work.episodes, work.targets, columns}, "episodes, target times, columns");
  // What its kernels count in 32 bits.
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  if (device.kind() != DeviceKind::cpu) {
    if (columns > most / static_cast<std::int64_t>(size_of(work.type))) {
      throw_invalid(rows.name(), "rows of less than 2 GiB on a GPU", rows.view.describe());
    }
    if (work.targets > 0 && work.episodes > most / work.targets) {
      throw_invalid(rows.name(), "less than 2^31 rows on a GPU", rows.view.describe());
    }
  }
  if (rows.view.elements() > 0 && columns > 1 && rows.view.strides()[2] != 1) {
    throw_invalid(rows.name(), "contiguous columns (a column stride of 1)",
                  fmt::format("{} with stride {}", rows.view.describe(), rows.view.strides()[2]));
  }
  check_memory(rows, device);
  work.out = rows.view.data();
  work.out_episode = step(rows.view, 0);
  work.out_target = step(rows.view, 1);
}

void take_valid(ResampleWork& work, const Named& valid, const Device& device) {
  check_type(valid, {DType::boolean});
  if (work.sensors > 1 || valid.view.rank() != 2) {
    check_shape(valid, {work.episodes, work.targets, work.sensors},
                "episodes, target times, sensors");
    work.valid_sensor = step(valid.view, 2);
  } else {
    check_shape(valid, {work.episodes, work.targets}, "episodes, target times");
  }
  check_memory(valid, device);
  work.valid = static_cast<bool*>(valid.view.data());
  work.valid_episode = step(valid.view, 0);
  work.valid_target = step(valid.view, 1);
}

}  // namespace

ResampleWork checked(const ResampleOptions& options, const Device& device) {
  const std::size_t count = options.sensors.size();
  if (count < 1 || count > detail::max_sensors) {
    throw_invalid("sensors", fmt::format("one to {}", detail::max_sensors), std::to_string(count));
  }
  std::size_t ranges = 0;
  for (const Sensor& sensor : options.sensors) ranges += sensor.columns.size();
  if (ranges > detail::max_ranges) {
    throw_invalid("sensors", fmt::format("at most {} column ranges in total", detail::max_ranges),
                  std::to_string(ranges));
  }
  check_outside(options.outside);
  if (options.kernel > ResampleKernel::brief) {
    throw_invalid("kernel", "best, deep, wide or brief",
                  std::to_string(static_cast<int>(options.kernel)));
  }

  ResampleWork work{.outside = options.outside, .fill = options.fill, .kernel = options.kernel};
  const SensorViews first = views_of(options.sensors, 0);
  std::int64_t columns = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const Sensor& sensor = options.sensors[i];
    const SensorViews views = views_of(options.sensors, i);
    const Sizes sizes = checked_sizes(views);
    if (i == 0) {
      work.episodes = sizes.episodes;
      work.type = sensor.values.dtype();
    } else {
      if (sizes.episodes != work.episodes) {
        throw_invalid((views.ragged() ? views.offsets : views.values).name(),
                      fmt::format("{} episodes, as in sensors[0]", work.episodes),
                      fmt::format("{}", sizes.episodes));
      }
      check_same_type(views.values, first.values);
    }
    work.sensor[work.sensors++] = checked_sensor(views, sizes, device);
    if (i > 0) check_same_type(views.times, first.times);
    append_segments(work, sensor, sizes.columns, columns);
    columns += sizes.columns;
  }
  check_fill(options.fill, work.type, options.outside);
  const Named at{"at", options.at}, out{"out", options.out}, valid{"valid", options.valid};
  take_at(work, at, first.times, device);
  check_same_type(out, first.values);
  take_rows(work, out, columns, device);
  const auto check_result = [&](const Named& result) {
    check_distinct_elements(result);
    for (std::size_t i = 0; i < count; ++i) check_apart(result, views_of(options.sensors, i).all());
    check_apart(result, at);
  };
  check_result(out);
  if (given(options.valid)) {
    take_valid(work, valid, device);
    check_result(valid);
    check_apart(valid, out);
  }
  return work;
}

ResampleWork checked(const ResampleGradientOptions& options, const Device& device) {
  const SensorViews views{{"out", options.out},
                          {"times", options.times},
                          {"lengths", options.lengths},
                          {"offsets", options.offsets}};
  check_outside(options.outside);
  const Sizes sizes = checked_sizes(views);
  check_type(views.values, {DType::f64, DType::f32, DType::f16, DType::bf16});
  ResampleWork work{
      .type = options.out.dtype(), .episodes = sizes.episodes, .outside = options.outside};
  work.sensor[work.sensors++] = checked_sensor(views, sizes, device);
  append(work, {0, sizes.columns}, 0);
  const Named at{"at", options.at}, gradient{"gradient", options.gradient};
  take_at(work, at, views.times, device);
  check_same_type(gradient, views.values);
  take_rows(work, gradient, sizes.columns, device);
  const Named inputs[] = {views.times, views.lengths, views.offsets, at, gradient};
  check_distinct_elements(views.values);
  check_apart(views.values, inputs);
  return work;
}

}  // namespace ps::resampling
