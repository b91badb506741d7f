// Resamples irregularly sampled signals at target times.
//
//   ps::resample(
//       {.sensors = {{.values = joints, .times = times}}, .at = clock, .out = out}, stream);
//
// `values` (B, S, D) are B episodes of S samples with D columns, taken at `times` (B, S). The
// target times `at` are (B, T), or (T) for all episodes. `out` is (B, T, D). Several sensors, each
// with its own S and times, are written side by side into the columns of `out`.
//
// Times: f32, f64 or i64 (for instance nanoseconds; differences are exact). All times of a call
// have one type. Sample times of an episode must not decrease; if timestamps repeat, the last
// sample wins. Target times need not be sorted.
//
// Between neighbouring samples x at time a and y at time b, with a < t < b and w = (t - a) / (b -
// a) in f64:
//
//   linear    x + w (y - x), computed in f64 for f32 and f64, in f32 for 16-bit types, rounded once
//   nearest   the nearer sample; the earlier one if both are equally near
//   previous  x
//   next      y
//   slerp     spherical interpolation of unit quaternions along the shorter arc, for each group of
//             four columns; computed in the types of linear, and normalised
//
// At the time of a sample the result is that sample, bit by bit, even if its neighbours are NaN.
// Times may be infinite: if one neighbouring time is infinite, linear, nearest and slerp give the
// other sample; if both are, they give the earlier one.
//
// Outside the first and last sample of an episode: see Outside. A NaN target time and an episode
// without samples give NaN, or `fill` in integer types (0 if `fill` is NaN); `valid` is false
// there.
//
// With `check`, sample times that decrease or are NaN throw InvalidArgument. Without it, the
// results of such an episode are unspecified combinations of its samples.
//
// Calls enqueue and return, and may be captured. With `check` or Outside::error they wait for the
// stream instead, and throw Unsupported during a capture. The views must stay alive until the work
// is done. Results are bitwise identical in every run and on every device, except for slerp and the
// bits of NaN. Throws InvalidArgument naming the argument, and Unsupported on GPUs below compute
// capability 8.0.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "penstock/base/view.h"
#include "penstock/host/stream.h"

namespace ps {

enum class Interpolation : std::uint8_t { linear, nearest, previous, next, slerp };

// The order of a quaternion's components; w is the real part.
enum class Quaternion : std::uint8_t { xyzw, wxyz };

// Columns [begin, end) of a sensor with their own mode.
struct Columns {
  std::int64_t begin = 0, end = 0;
  Interpolation mode = Interpolation::linear;
  Quaternion order = Quaternion::xyzw;  // for slerp; its ranges are multiples of four columns
};

struct Sensor {
  // (B, S, D), or (N, D) with `offsets`; any strides. All modes for f64, f32, f16 and bf16;
  // nearest, previous and next for i64, i32, u8 and boolean. All sensors of a call have the same
  // type.
  TensorView values{};
  TensorView times{};  // (B, S), or (S) for all episodes, or (N) with `offsets`
  // For episodes of different lengths, one of the two, i32 or i64, on the stream's device.
  // `lengths` (B): the number of samples of each episode; the padding after them is never read.
  // `offsets` (B + 1): the first sample of each episode in N concatenated samples. An episode whose
  // length is negative or too large counts as empty; `check` reports it.
  TensorView lengths{};
  TensorView offsets{};
  Interpolation mode = Interpolation::linear;  // of all columns that are not in `columns`
  Quaternion order = Quaternion::xyzw;
  std::vector<Columns> columns{};  // must not overlap
};

// The result for a target time before the first or after the last sample.
enum class Outside : std::uint8_t {
  clamp,        // the first or the last sample
  fill,         // ResampleOptions::fill
  extrapolate,  // linear and slerp: through the first or last two samples; other modes: clamp
  error,        // throws InvalidArgument naming the first such time; waits for the stream
};

// The kernel on a GPU; ignored on the CPU. Applies to one sensor with one mode and contiguous
// columns; all other calls use a separate kernel.
enum class ResampleKernel : std::uint8_t {
  best,   // the fastest measured, for this GPU and the size of the call
  deep,   // more loads in flight per thread
  wide,   // more target times per block; also the fallback, and for rows not aligned to 16 bytes
  brief,  // one block loads a whole episode at once; for few and short episodes
};

struct ResampleOptions {
  std::vector<Sensor> sensors{};  // one to eight, with at most 32 ranges of columns in total
  TensorView at{};                // (B, T), or (T) for all episodes
  TensorView out{};  // (B, T, D), where D counts the columns of all sensors; columns are contiguous
  // Optional: boolean (B, T) for one sensor, or (B, T, sensors). Whether the target time lies
  // between the first and the last sample.
  TensorView valid{};
  Outside outside = Outside::clamp;
  double fill = std::numeric_limits<double>::quiet_NaN();  // for Outside::fill
  bool check = false;  // check lengths and sample times first, which waits for the stream
  ResampleKernel kernel = ResampleKernel::best;
};
void resample(const ResampleOptions& options, const Stream& stream);

// The gradient of a linear resample of one sensor with respect to `values`, from the gradient with
// respect to `out`. Sums run over the target times in order, so that every run gives the same bits.
// Enqueues and returns; may be captured, except with Outside::error.
struct ResampleGradientOptions {
  TensorView gradient{};                           // (B, T, D), with respect to `out`
  TensorView times{}, lengths{}, offsets{}, at{};  // as in the resample
  TensorView out{};  // (B, S, D) or (N, D), with respect to `values`; every element is written
  Outside outside = Outside::clamp;
};
void resample_gradient(const ResampleGradientOptions& options, const Stream& stream);

}  // namespace ps
