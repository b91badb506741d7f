// Signals at irregular times, brought to wanted times at the speed of memory.
//
//   ps::resample({.sensors = {{.values = joints, .times = times}}, .at = clock, .out = out},
//   stream);
//
// Values (B, S, D) were taken at times (B, S); wanted at (B, T), or at one clock (T) for all, they
// become out (B, T, D). Several sensors, each with its own S and times, fill one row side by side.
//
// **Times** of a sensor's episode do not decrease; of several samples with one time, the last is
// the one at that time. f32, f64 or i64 (nanoseconds, say: differences are exact, however far from
// zero); `at` has the type of all times. Wanted times need no order.
//
// **Between** two neighbouring samples of times a < t < b, with w = (t - a) / (b - a) in f64:
//   linear    x + w (y - x): f32 and f64 in f64, 16-bit types in f32, rounded once; x itself where
//             w is nought there
//   nearest   the nearer one; the earlier where both are as near
//   previous  the earlier one
//   next      the later one
//   slerp     the rotation on the shorter arc, of unit quaternions, each four neighbouring columns;
//             computed like linear, with the result's length 1
// At the very time of a sample it is that sample, bit by bit, whatever its neighbours hold. A time
// of plus or minus infinity is farther than any other; between two of them the earlier counts.
//
// **Outside** an episode's first and last time: see Outside. A wanted NaN and an episode without
// samples give NaN in floating types and `fill`, or 0 where that is NaN, in integers; `valid` tells
// them apart. One sample is an episode that begins and ends there.
//
// **Times that decrease or are NaN** are found by `check`, at the price of waiting for the stream.
// Without it a result is then made of some samples of its episode; nothing else is read.
//
// All calls but those with `check` or Outside::error enqueue and return, and may be captured; those
// throw Unsupported while the stream is. A call's views must stay alive until its work is done.
// Results are the same bits on every device but for slerp and NaN's, and in every run. Throws
// InvalidArgument, which names the argument, and Unsupported on GPUs older than 8.0.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "penstock/base/view.h"
#include "penstock/host/stream.h"

namespace ps {

enum class Interpolation : std::uint8_t { linear, nearest, previous, next, slerp };

// Where a quaternion has its real part.
enum class Quaternion : std::uint8_t { xyzw, wxyz };

// A range of a sensor's columns with a mode of its own.
struct Columns {
  std::int64_t begin = 0, end = 0;
  Interpolation mode = Interpolation::linear;
  Quaternion order = Quaternion::xyzw;  // for slerp, whose ranges are multiples of four wide
};

struct Sensor {
  // (B, S, D), or (N, D) with `offsets`, of any strides. f64, f32, f16 and bf16 have all modes;
  // i64, i32, u8 and boolean have nearest, previous and next. All sensors of a call have one type.
  TensorView values{};
  TensorView times{};  // (B, S), or (S) for all episodes, or (N) with `offsets`
  // Where episodes differ in length, one of: the samples of each, (B), of which the first count; or
  // where each begins in one row of samples, (B + 1). i32 or i64, on the stream's device. A length
  // that is negative or more than there are makes its episode an empty one; `check` finds it.
  TensorView lengths{};
  TensorView offsets{};
  Interpolation mode = Interpolation::linear;  // of columns in no range
  Quaternion order = Quaternion::xyzw;
  std::vector<Columns> columns{};  // apart from each other
};

// What a time before the first or after the last sample gives.
enum class Outside : std::uint8_t {
  clamp,        // the first or the last sample
  fill,         // `fill`
  extrapolate,  // linear and slerp: the line through the two first or last samples; else clamp
  error,        // InvalidArgument, naming the first one; waits for the stream
};

// Which kernel a GPU runs. The CPU has one way and ignores it.
// Several sensors or modes, and columns apart from each other, have a kernel of their own, whatever
// is asked for; otherwise rows move whole.
enum class ResampleKernel : std::uint8_t {
  best,   // as measured, for this GPU, the rows and their number
  deep,   // a thread has more under way
  wide,   // a block has more targets; also what moves rows that 16-byte boundaries do not suit, and
          // what runs where another cannot
  brief,  // a block fetches all of an episode at once; for few and short ones
};

struct ResampleOptions {
  std::vector<Sensor> sensors{};  // one to eight, with at most 32 ranges of columns in all
  TensorView at{};                // (B, T), or (T) for all episodes
  TensorView out{};    // (B, T, D), D the sensors' columns one after the other; columns contiguous
  TensorView valid{};  // none, or boolean (B, T) for one sensor, (B, T, sensors) for any number:
                       // whether the time lies within the episode's
  Outside outside = Outside::clamp;
  double fill = std::numeric_limits<double>::quiet_NaN();
  bool check = false;
  ResampleKernel kernel = ResampleKernel::best;
};
void resample(const ResampleOptions& options, const Stream& stream);

// d(loss)/d(values) of a resample with one sensor in linear mode, from d(loss)/d(out): the sum over
// the targets that a sample had a part in, in their order, so that every run gives the same bits.
struct ResampleGradientOptions {
  TensorView gradient{};  // (B, T, D), of out
  TensorView times{}, lengths{}, offsets{}, at{};
  TensorView out{};  // (B, S, D) or (N, D): of values; written, zeros included
  Outside outside = Outside::clamp;
};
void resample_gradient(const ResampleGradientOptions& options, const Stream& stream);

}  // namespace ps
