// The kernels for every supported GPU. A file for each type of times has them: together they take
// minutes to compile.
#pragma once

#include <algorithm>
#include <bit>

#include "ops/resample/brief.cuh"
#include "ops/resample/kernel_work.cuh"
#include "ops/resample/mixed.cuh"
#include "ops/resample/tile.cuh"

namespace ps::resampling {
namespace {

// Targets of a block: `wanted`, at most `most`. Fewer where the GPU would not have enough blocks,
// and no more than usual where it would not be full.
unsigned targets_of_block(const ResampleWork& work, unsigned wanted, unsigned most,
                          int multiprocessors) {
  constexpr unsigned enough = 3, full = 8;  // blocks of a multiprocessor
  constexpr unsigned usual = 64, fewest = 4;
  unsigned tile = std::clamp(wanted, 1U, most);
  tile = static_cast<unsigned>(std::min<std::int64_t>(tile, work.targets));
  const auto blocks = [&] { return work.episodes * ((work.targets + tile - 1) / tile); };
  while (tile > fewest && blocks() < std::int64_t{tile > usual ? full : enough} * multiprocessors) {
    tile /= 2;
  }
  return tile;
}

template <class Config>
cudaError_t run_tiles(const WholeWork& whole, const ResampleWork& work, int multiprocessors,
                      cudaStream_t stream) {
  const unsigned vectors = std::max(whole.strip.vectors, 1U);
  const unsigned tile =
      targets_of_block(work, Config::vectors / vectors, Config::targets, multiprocessors);
  TileWork tiles(whole, tile);
  tiles.margin = margin_of(work.sensor[0], work, 3, tile, Config::window);
  // Threads stay in their columns where that takes no more rounds than if none were ever idle.
  const auto rounds = [](unsigned each, unsigned all) { return (all + each - 1) / each; };
  const unsigned abreast = Config::threads / vectors;
  if (abreast > 0 && rounds(Config::at_once * abreast, tile) <=
                         rounds(Config::at_once * Config::threads, tile * vectors)) {
    tiles.whole.strip.abreast = abreast;
  }
  return launch_tiles<Config>(tiles, work.episodes, stream);
}

template <class Element, class Time, unsigned bytes>
cudaError_t run_tiles(const WholeWork& whole, const ResampleWork& work, int multiprocessors,
                      cudaStream_t stream) {
  if constexpr (bytes == brief_vector) {
    if (work.kernel == ResampleKernel::brief && is_brief(work, multiprocessors)) {
      return launch_brief<Element, Time>({whole, brief_targets(whole.strip.vectors)}, work.episodes,
                                         stream);
    }
    if (work.kernel == ResampleKernel::deep) {
      return run_tiles<TileConfig<Element, Time, bytes, true>>(whole, work, multiprocessors,
                                                               stream);
    }
  }
  return run_tiles<TileConfig<Element, Time, bytes, false>>(whole, work, multiprocessors, stream);
}

template <class Element, class Time>
cudaError_t run_tiles(const Whole& whole, const ResampleWork& work, int multiprocessors,
                      cudaStream_t stream) {
  constexpr std::size_t least = std::is_same_v<Element, Moved> ? 1 : sizeof(Element);
  const unsigned bytes = whole.bytes;
  if (bytes == 16) return run_tiles<Element, Time, 16>(whole.work, work, multiprocessors, stream);
  if (bytes == 8) return run_tiles<Element, Time, 8>(whole.work, work, multiprocessors, stream);
  if constexpr (least <= 4) {
    if (bytes == 4) return run_tiles<Element, Time, 4>(whole.work, work, multiprocessors, stream);
  }
  if constexpr (least <= 2) {
    if (bytes == 2) return run_tiles<Element, Time, 2>(whole.work, work, multiprocessors, stream);
  }
  if constexpr (least <= 1) {
    if (bytes == 1) return run_tiles<Element, Time, 1>(whole.work, work, multiprocessors, stream);
  }
  return cudaErrorInvalidValue;
}

// Some columns of the results, and what they are made of.
struct Part {
  ResampleWork work;
  std::int64_t columns = 0;
};

// The first of the columns that are left, as many as a launch has room for; they are no longer left
// then. Quaternions stay whole.
Part take_part(ResampleWork& left, std::int64_t size) {
  Part part{left};
  part.work.segments = 0;
  std::int64_t room = mixed_rows / size;
  unsigned kept = 0;
  for (unsigned i = 0; i < left.segments; ++i) {
    SegmentWork segment = left.segment[i];
    const std::int64_t unit = segment.mode == Interpolation::slerp ? 4 : 1;
    const bool full = kept > 0 || part.work.segments == mixed_segments;
    const std::int64_t taken = full ? 0 : std::min(segment.count, room / unit * unit);
    room -= taken;
    if (taken > 0) {
      SegmentWork& to = part.work.segment[part.work.segments++] = segment;
      to.out_column = part.columns;
      to.count = taken;
      part.columns += taken;
    }
    segment.column += taken;
    segment.count -= taken;
    if (segment.count > 0) left.segment[kept++] = segment;
  }
  left.segments = kept;
  left.out = static_cast<unsigned char*>(left.out) + part.columns * size;
  return part;
}

// How lanes share the rows of a block's targets, so that these take the fewest units; how many.
unsigned divide_rows(MixedSegment& segment, unsigned tile) {
  constexpr unsigned lanes = 32, tries = 8;
  const unsigned fewest = (segment.vectors + lanes - 1) / lanes;
  unsigned units = 0;
  for (unsigned parts = fewest; parts < fewest + tries; ++parts) {
    const unsigned width = (segment.vectors + parts - 1) / parts, abreast = lanes / width;
    const unsigned at_once = segment.at_once * abreast;  // rows
    const unsigned taken = (tile + at_once - 1) / at_once * parts;
    if (units > 0 && taken >= units) continue;
    units = taken;
    segment.abreast = abreast;
    segment.by_width = kit::Divisor(width);
    segment.by_parts = kit::Divisor(parts);
  }
  return units;
}

MixedSegment mixed_segment(const ResampleWork& work, const SegmentWork& from, std::int64_t size,
                           bool together) {
  const SensorWork& sensor = work.sensor[from.sensor];
  const bool quaternions = from.mode == Interpolation::slerp, apart = sensor.value_column != 1;
  const unsigned bytes = quaternions || apart ? static_cast<unsigned>(size)
                                              : source_alignment(work, from, size).bytes();
  const auto vectors = static_cast<unsigned>(from.count * size / (quaternions ? 4 * bytes : bytes));
  Alignment within;  // rows that begin at 16 bytes
  within.include(from.out_column * size);
  const unsigned place = together ? result_alignment(work, from, size).bytes() : within.bytes();
  return {.vectors = vectors,
          .at_once = quaternions || apart ? 1 : mixed_at_once,
          .out = static_cast<unsigned>(from.out_column * size),
          .sample = sensor.value_sample * size,
          .column = from.column * sensor.value_column * size,
          .step = apart ? sensor.value_column * size : std::int64_t{bytes},
          .bytes = static_cast<std::uint8_t>(bytes),
          .piece = static_cast<std::uint8_t>(std::min(bytes, place)),
          .apart = apart,
          .mode = from.mode};
}

template <class Element, class Time>
cudaError_t run_part(const Part& part, int multiprocessors, cudaStream_t stream) {
  const ResampleWork& work = part.work;
  const auto size = static_cast<std::int64_t>(size_of(work.type));
  const bool together = work.out_target == part.columns;
  MixedWork mixed{};
  fill_common(mixed, work, size);
  mixed.valid_sensor = work.valid_sensor;
  mixed.sensors = work.sensors;
  mixed.segments = work.segments;
  mixed.row = static_cast<unsigned>(part.columns * size);
  mixed.pitch = together ? mixed.row : (mixed.row + 15) / 16 * 16;
  Alignment rows;
  rows.include(work.out);
  for (const std::int64_t elements : {work.out_episode, work.out_target, part.columns}) {
    rows.include(elements * size);
  }
  mixed.piece = std::min(rows.bytes(), 4U);
  mixed.by_pieces = kit::Divisor(std::max(mixed.row / mixed.piece, 1U));

  const unsigned most =
      std::min(mixed_spots / work.sensors, mixed_rows / std::max(mixed.pitch, 1U));
  mixed.tile = targets_of_block(work, most, most, multiprocessors);
  mixed.tiles = (mixed.targets + mixed.tile - 1) / mixed.tile;
  mixed.by_tiles = kit::Divisor(mixed.tiles);
  mixed.by_tile = kit::Divisor(mixed.tile);
  for (unsigned i = 0; i < work.segments; ++i) {
    mixed.sensor[work.segment[i].sensor].modes |= bit_of(work.segment[i].mode);
  }
  for (unsigned i = 0; i < work.sensors; ++i) {
    MixedSensor& sensor = mixed.sensor[i];
    sensor.sensor = in_bytes(work.sensor[i], size);
    // All sensors' times are fetched: fewer of each.
    sensor.margin = margin_of(work.sensor[i], work, 1, mixed.tile, mixed_window<Time>);
    sensor.ragged = work.sensor[i].lengths != nullptr || work.sensor[i].offsets != nullptr;
    sensor.source = mixed.sources;
    mixed.sources += mixed.tile * static_cast<unsigned>(std::popcount(sensor.modes));
  }
  bool turns = false;
  for (unsigned i = 0; i < work.segments; ++i) {
    MixedSegment& segment = mixed.segment[i] = mixed_segment(work, work.segment[i], size, together);
    const MixedSensor& sensor = mixed.sensor[work.segment[i].sensor];
    const unsigned before = sensor.modes & (bit_of(segment.mode) - 1);
    segment.source = sensor.source + mixed.tile * static_cast<unsigned>(std::popcount(before));
    segment.begin = mixed.units;
    mixed.units += divide_rows(segment, mixed.tile);
    segment.end = mixed.units;
    turns |= segment.mode == Interpolation::slerp;
  }
  return launch_mixed<Element, Time>(mixed, work.episodes, turns, stream);
}

template <class Element, class Time>
cudaError_t run_mixed(const ResampleWork& work, int multiprocessors, cudaStream_t stream) {
  const auto size = static_cast<std::int64_t>(size_of(work.type));
  ResampleWork left = work;
  do {
    const Part part = take_part(left, size);
    const cudaError_t status = run_part<Element, Time>(part, multiprocessors, stream);
    if (status != cudaSuccess) return status;
  } while (left.segments > 0);
  return cudaSuccess;
}

template <class Element, class Time>
cudaError_t run(const ResampleWork& work, int multiprocessors, cudaStream_t stream) {
  const std::optional<Whole> whole = whole_of(work);
  if (!whole) return run_mixed<Element, Time>(work, multiprocessors, stream);
  if (whole->work.mode == Interpolation::linear) {
    return run_tiles<Element, Time>(*whole, work, multiprocessors, stream);
  }
  return run_tiles<Moved, Time>(*whole, work, multiprocessors, stream);
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
