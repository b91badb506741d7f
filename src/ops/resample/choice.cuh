// Which of the GPU's ways a call takes. A file for each type of times has it: together they take
// minutes to compile.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/resample/fill.h"
#include "ops/resample/mixed.cuh"
#include "ops/resample/tile.cuh"

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

// How wide the vectors are that a segment's columns may be moved by.
unsigned vector_bytes(const ResampleWork& work, const SegmentWork& segment, std::int64_t size) {
  const SensorWork& sensor = work.sensor[segment.sensor];
  if (sensor.value_column != 1) return static_cast<unsigned>(size);
  Alignment alignment;
  alignment.include(sensor.values);
  alignment.include(work.out);
  for (const std::int64_t elements :
       {sensor.value_episode, sensor.value_sample, work.out_episode, work.out_target,
        segment.column, segment.out_column, segment.count}) {
    alignment.include(elements * size);
  }
  return alignment.bytes();
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
  to.fill = filling(bits.outside, static_cast<std::size_t>(size));
  to.missing = filling(bits.missing, static_cast<std::size_t>(size));
  to.targets = static_cast<unsigned>(work.targets);
  to.outside = work.outside;
}

// Targets of a block: enough vectors for its threads, but enough blocks for the GPU first.
unsigned targets_of_block(const ResampleWork& work, unsigned vectors, unsigned most,
                          int multiprocessors) {
  constexpr unsigned vectors_of_block = 2048, blocks_of_multiprocessor = 4, fewest = 4;
  const auto enough = static_cast<std::int64_t>(blocks_of_multiprocessor) * multiprocessors;
  unsigned tile = std::clamp(vectors_of_block / std::max(vectors, 1U), 1U, most);
  tile = static_cast<unsigned>(std::min<std::int64_t>(tile, work.targets));
  while (tile > fewest && work.episodes * ((work.targets + tile - 1) / tile) < enough) {
    tile /= 2;
  }
  return tile;
}

template <class Element, class Time, unsigned bytes>
cudaError_t run_tiles(TileWork& work, const ResampleWork& all, int multiprocessors,
                      cudaStream_t stream) {
  using Config = TileConfig<Element, Time, bytes>;
  work.tile = targets_of_block(all, work.vectors, Config::threads, multiprocessors);
  work.tiles = (work.targets + work.tile - 1) / work.tile;
  work.by_tiles = Divider(work.tiles);
  work.by_vectors = Divider(work.vectors);
  return launch_tiles<Config>(work, all.episodes, stream);
}

template <class Element, class Time>
cudaError_t run_tiles(unsigned bytes, TileWork& work, const ResampleWork& all, int multiprocessors,
                      cudaStream_t stream) {
  constexpr std::size_t least = std::is_same_v<Element, Moved> ? 1 : sizeof(Element);
  if (bytes == 16) return run_tiles<Element, Time, 16>(work, all, multiprocessors, stream);
  if (bytes == 8) return run_tiles<Element, Time, 8>(work, all, multiprocessors, stream);
  if constexpr (least <= 4) {
    if (bytes == 4) return run_tiles<Element, Time, 4>(work, all, multiprocessors, stream);
  }
  if constexpr (least <= 2) {
    if (bytes == 2) return run_tiles<Element, Time, 2>(work, all, multiprocessors, stream);
  }
  if constexpr (least <= 1) {
    if (bytes == 1) return run_tiles<Element, Time, 1>(work, all, multiprocessors, stream);
  }
  return cudaErrorInvalidValue;
}

template <class Element, class Time>
cudaError_t run_mixed(MixedWork& work, const ResampleWork& all, int multiprocessors,
                      cudaStream_t stream) {
  work.tile = targets_of_block(all, work.units, mixed_threads / work.sensors, multiprocessors);
  work.tiles = (work.targets + work.tile - 1) / work.tile;
  work.by_tiles = Divider(work.tiles);
  work.by_tile = Divider(work.tile);
  work.by_units = Divider(std::max(work.units, 1U));
  const auto blocks = static_cast<unsigned>(all.episodes * work.tiles);
  mixed_kernel<Element, Time><<<blocks, mixed_threads, 0, stream>>>(work);
  return cudaGetLastError();
}

template <class Element, class Time>
cudaError_t run(const ResampleWork& work, int multiprocessors, cudaStream_t stream) {
  const auto size = static_cast<std::int64_t>(size_of(work.type));
  const SegmentWork& only = work.segment[0];
  const bool whole = work.sensors == 1 && work.segments == 1 && only.mode != Interpolation::slerp &&
                     work.sensor[0].value_column == 1 &&
                     work.sensor[0].samples <= std::numeric_limits<int>::max();
  if (whole) {
    TileWork tile{};
    fill_common(tile, work, size);
    tile.sensor = in_bytes(work.sensor[0], size);
    const unsigned bytes = vector_bytes(work, only, size);
    tile.vectors = static_cast<unsigned>(only.count * size / bytes);
    tile.mode = only.mode;
    // Random times stray by about the root of their number from even ones.
    const double root = std::sqrt(static_cast<double>(tile.sensor.samples));
    tile.margin = static_cast<int>(std::min(16 + 3 * root, 512.0));
    if (only.mode == Interpolation::linear) {
      return run_tiles<Element, Time>(bytes, tile, work, multiprocessors, stream);
    }
    return run_tiles<Moved, Time>(bytes, tile, work, multiprocessors, stream);
  }
  MixedWork mixed{};
  fill_common(mixed, work, size);
  mixed.valid_sensor = work.valid_sensor;
  mixed.sensors = work.sensors;
  mixed.segments = work.segments;
  for (unsigned i = 0; i < work.sensors; ++i) mixed.sensor[i] = in_bytes(work.sensor[i], size);
  for (unsigned i = 0; i < work.segments; ++i) {
    const SegmentWork& from = work.segment[i];
    const bool quaternion = from.mode == Interpolation::slerp;
    const std::int64_t stride = work.sensor[from.sensor].value_column;
    const auto bytes = quaternion ? static_cast<unsigned>(size) : vector_bytes(work, from, size);
    mixed.segment[i] = {.begin = mixed.units,
                        .sensor = static_cast<std::uint8_t>(from.sensor),
                        .mode = from.mode,
                        .bytes = static_cast<std::uint8_t>(bytes),
                        .column = from.column * stride * size,
                        .step = stride == 1 ? static_cast<std::int64_t>(bytes) : stride * size,
                        .out = from.out_column * size};
    mixed.units += static_cast<unsigned>(from.count * size / bytes / (quaternion ? 4 : 1));
  }
  return run_mixed<Element, Time>(mixed, work, multiprocessors, stream);
}

template <class Time>
cudaError_t run(const ResampleWork& work, int multiprocessors, cudaStream_t stream) {
  switch (work.type) {
    case DType::f64:
      return run<double, Time>(work, multiprocessors, stream);
    case DType::f32:
      return run<float, Time>(work, multiprocessors, stream);
    case DType::f16:
      return run<__half, Time>(work, multiprocessors, stream);
    case DType::bf16:
      return run<__nv_bfloat16, Time>(work, multiprocessors, stream);
    default:
      return run<Moved, Time>(work, multiprocessors, stream);
  }
}

}  // namespace
}  // namespace ps::resampling
