// Translates the work of a call into the arguments of the kernels. Host code only.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "ops/resample/fill.h"
#include "ops/resample/whole.cuh"

namespace ps::resampling {
namespace {

using detail::ResampleWork;
using detail::SegmentWork;
using detail::SensorWork;

// The largest power of two, up to 16, that divides all of what is put in.
class Alignment {
 public:
  void include(const void* address) { bits_ |= reinterpret_cast<std::uintptr_t>(address); }
  void include(std::int64_t bytes) { bits_ |= static_cast<std::uint64_t>(bytes); }
  unsigned bytes() const {
    unsigned bytes = 16;
    while (bits_ % bytes != 0) bytes /= 2;
    return bytes;
  }

 private:
  std::uint64_t bits_ = 0;
};

std::uint64_t filling(std::uint64_t bits, std::size_t size) {
  for (std::size_t have = size; have < 8; have *= 2) bits |= bits << (8 * have);
  return bits;
}

// Strides of values, in bytes.
SensorWork in_bytes(SensorWork sensor, std::int64_t size) {
  sensor.value_episode *= size;
  sensor.value_sample *= size;
  sensor.value_column *= size;
  return sensor;
}

// What all places of a segment's columns have in common, where they come from and where they go.
Alignment source_alignment(const ResampleWork& work, const SegmentWork& segment,
                           std::int64_t size) {
  const SensorWork& sensor = work.sensor[segment.sensor];
  Alignment alignment;
  alignment.include(sensor.values);
  for (const std::int64_t elements :
       {sensor.value_episode, sensor.value_sample, segment.column, segment.count}) {
    alignment.include(elements * size);
  }
  return alignment;
}
Alignment result_alignment(const ResampleWork& work, const SegmentWork& segment,
                           std::int64_t size) {
  Alignment alignment;
  alignment.include(work.out);
  for (const std::int64_t elements : {work.out_episode, work.out_target, segment.out_column}) {
    alignment.include(elements * size);
  }
  return alignment;
}

template <class Work>
void fill_common(Work& to, const ResampleWork& work, std::int64_t size) {
  const FillBits bits = fill_bits(work);
  to.at = work.at;
  to.at_episode = work.at_episode;
  to.at_target = work.at_target;
  to.out = static_cast<unsigned char*>(work.out);
  to.out_episode = work.out_episode * size;
  to.out_target = work.out_target * size;
  to.valid = work.valid;
  to.valid_episode = work.valid_episode;
  to.valid_target = work.valid_target;
  to.blank = {filling(bits.outside, static_cast<std::size_t>(size)),
              filling(bits.missing, static_cast<std::size_t>(size))};
  to.targets = static_cast<unsigned>(work.targets);
  to.even = even_step(to.targets);
  to.outside = work.outside;
}

// Samples of an episode, about.
std::int64_t usual_samples(const SensorWork& sensor, std::int64_t episodes) {
  return sensor.samples / (sensor.offsets != nullptr ? std::max<std::int64_t>(episodes, 1) : 1);
}

// Times at hand on both sides of those that a block's targets want of even ones, as far as there is
// room in a window. Random times stray by about the root of their number from even ones; `roots` of
// it are at hand.
int margin_of(const SensorWork& sensor, const ResampleWork& work, double roots, unsigned tile,
              int window) {
  constexpr double least = 16;
  const auto samples = static_cast<double>(usual_samples(sensor, work.episodes));
  const double wanted =
      samples * tile / static_cast<double>(std::max<std::int64_t>(work.targets, 1));
  const double room = std::max((window - wanted) / 2 - 1, least);
  return static_cast<int>(std::min(least + roots * std::sqrt(samples), room));
}

// Where one sensor's rows move whole. They may be a part of the columns in memory.
struct Whole {
  WholeWork work{};
  unsigned bytes = 0;  // of a vector
};
std::optional<Whole> whole_of(const ResampleWork& work) {
  const SegmentWork& only = work.segment[0];
  const SensorWork& sensor = work.sensor[0];
  const auto size = static_cast<std::int64_t>(size_of(work.type));
  if (work.sensors != 1 || work.segments != 1 || only.mode == Interpolation::slerp ||
      sensor.value_column != 1 || sensor.samples > most_samples ||
      !std::in_range<int>(sensor.value_sample * size)) {  // what a Strip has
    return std::nullopt;
  }
  Whole whole;
  WholeWork& to = whole.work;
  fill_common(to, work, size);
  to.sensor = in_bytes(sensor, size);
  whole.bytes = std::min(source_alignment(work, only, size).bytes(),
                         result_alignment(work, only, size).bytes());
  const auto vectors = static_cast<unsigned>(only.count * size / whole.bytes);
  to.strip = {.vectors = vectors,
              .by_vectors = kit::Divisor(std::max(vectors, 1U)),
              .sample = static_cast<int>(to.sensor.value_sample),
              .target = to.out_target};
  to.mode = only.mode;
  return whole;
}

}  // namespace
}  // namespace ps::resampling
