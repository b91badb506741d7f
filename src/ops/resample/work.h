// What the ways to resample are given, one a place. Arguments are already checked.
#pragma once

#include <array>
#include <cstdint>

#include "penstock/base/dtype.h"
#include "penstock/host/stream.h"
#include "penstock/ops/resample.h"

namespace ps::detail {

inline constexpr unsigned max_sensors = 8;
inline constexpr unsigned max_ranges = 32;
// Ranges given, and what lies before, between and behind those of each sensor.
inline constexpr unsigned max_segments = 2 * max_ranges + max_sensors;

// Strides are in elements.
struct SensorWork {
  const void* values = nullptr;
  std::int64_t value_episode = 0, value_sample = 0, value_column = 1;
  const void* times = nullptr;
  std::int64_t time_episode = 0, time_sample = 1;
  const void* lengths = nullptr;  // at most one of the two
  const void* offsets = nullptr;
  std::int64_t length_stride = 1;  // of whichever there is
  bool wide_lengths = false;       // i64, else i32
  std::int64_t samples = 0;        // S, or N
};

// Neighbouring columns of one sensor with one mode.
struct SegmentWork {
  std::uint32_t sensor = 0;
  Interpolation mode = Interpolation::linear;
  Quaternion order = Quaternion::xyzw;
  std::int64_t column = 0, count = 0;  // in the sensor
  std::int64_t out_column = 0;
};

struct ResampleWork {
  DType type = DType::f32, time_type = DType::f32;
  std::int64_t episodes = 0, targets = 0;
  unsigned sensors = 0, segments = 0;
  std::array<SensorWork, max_sensors> sensor{};
  std::array<SegmentWork, max_segments> segment{};
  const void* at = nullptr;
  std::int64_t at_episode = 0, at_target = 1;
  void* out = nullptr;
  std::int64_t out_episode = 0, out_target = 0;  // columns have stride 1
  bool* valid = nullptr;                         // null: none
  std::int64_t valid_episode = 0, valid_target = 0, valid_sensor = 0;
  Outside outside = Outside::clamp;
  double fill = 0;
  ResampleKernel kernel = ResampleKernel::best;
};

// What a check found first: in the order of sensors, episodes, samples.
struct ResampleFault {
  enum class Kind : std::uint8_t { none, length, unsorted, nan, outside };
  Kind kind = Kind::none;
  unsigned sensor = 0;
  std::int64_t episode = 0, index = 0;  // index: of a sample, or a target for `outside`
};

void resample_cpu(const ResampleWork& work, const Stream& stream);

// On a GPU of 8.0 or later. Throws DeviceError.
void resample_gpu(const ResampleWork& work, const Stream& stream);

// Wait for the stream. `times`: look for lengths and times that are wrong; `outside`: for wanted
// times outside their episode.
struct ResampleChecks {
  bool times = false, outside = false;
};
ResampleFault check_resample_cpu(const ResampleWork& work, ResampleChecks checks,
                                 const Stream& stream);
ResampleFault check_resample_gpu(const ResampleWork& work, ResampleChecks checks,
                                 const Stream& stream);

// Of one sensor with one linear segment: `out` is the gradient that came in, `values` where the
// gradient goes. Each sample's sum is made by one thread, over the targets in their order.
void resample_gradient_cpu(const ResampleWork& work, const Stream& stream);
void resample_gradient_gpu(const ResampleWork& work, const Stream& stream);

}  // namespace ps::detail
