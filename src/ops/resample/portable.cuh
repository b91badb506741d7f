// The kernels for every supported GPU. A file for each type of times has them: together they take
// minutes to compile.
#pragma once

#include <algorithm>

#include "ops/resample/launch.cuh"
#include "ops/resample/mixed.cuh"
#include "ops/resample/tile.cuh"

namespace ps::resampling {
namespace {

// Targets of a block: at most `most`, and so many that all have `vectors_of_block` vectors. Fewer
// where the GPU would not have enough blocks, and no more than usual where it would not be full.
unsigned targets_of_block(const ResampleWork& work, unsigned vectors, unsigned vectors_of_block,
                          unsigned most, int multiprocessors) {
  constexpr unsigned enough = 3, full = 8;  // blocks of a multiprocessor
  constexpr unsigned usual = 64, fewest = 4;
  unsigned tile = std::clamp(vectors_of_block / std::max(vectors, 1U), 1U, most);
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
  const unsigned tile = targets_of_block(work, whole.strip.vectors, Config::vectors,
                                         Config::targets, multiprocessors);
  const unsigned tiles = (whole.targets + tile - 1) / tile;
  return launch_tiles<Config>({whole, tile, tiles, kit::Divisor(tiles)}, work.episodes, stream);
}

template <class Element, class Time, unsigned bytes>
cudaError_t run_tiles(const WholeWork& whole, const ResampleWork& work, int multiprocessors,
                      cudaStream_t stream) {
  if constexpr (bytes == 16) {
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

// What a warp makes at once of all segments, for so many targets of a block.
void count_units(MixedWork& mixed, unsigned segments) {
  mixed.units = 0;
  for (unsigned i = 0; i < segments; ++i) {
    MixedSegment& segment = mixed.segment[i];
    const bool one_by_one = segment.apart || segment.mode == Interpolation::slerp;
    const unsigned at_once = 32 * mixed_at_once(segment.bytes, one_by_one);
    mixed.units += (mixed.tile * segment.vectors + at_once - 1) / at_once;
    segment.units = mixed.units;
  }
}

template <class Element, class Time>
cudaError_t run_mixed(const ResampleWork& work, int multiprocessors, cudaStream_t stream) {
  constexpr unsigned vectors_of_block = 2048;
  const auto size = static_cast<std::int64_t>(size_of(work.type));
  MixedWork mixed{};
  fill_common(mixed, work, size);
  mixed.valid_sensor = work.valid_sensor;
  mixed.sensors = work.sensors;
  unsigned vectors = 0;
  std::int64_t columns = 0;
  for (unsigned i = 0; i < work.segments; ++i) {
    const SegmentWork& from = work.segment[i];
    const SensorWork& sensor = work.sensor[from.sensor];
    const bool quaternions = from.mode == Interpolation::slerp, apart = sensor.value_column != 1;
    const unsigned bytes = quaternions || apart ? static_cast<unsigned>(size)
                                                : source_alignment(work, from, size).bytes();
    const auto count = static_cast<unsigned>(from.count * size / (quaternions ? 4 * bytes : bytes));
    mixed.segment[i] = {.vectors = count,
                        .by_vectors = kit::Divisor(std::max(count, 1U)),
                        .units = 0,
                        .sample = sensor.value_sample * size,
                        .column = from.column * sensor.value_column * size,
                        .step = apart ? sensor.value_column * size : std::int64_t{bytes},
                        .out = from.out_column * size,
                        .sensor = static_cast<std::uint8_t>(from.sensor),
                        .bytes = static_cast<std::uint8_t>(bytes),
                        .piece = static_cast<std::uint8_t>(
                            std::min(bytes, result_alignment(work, from, size).bytes())),
                        .apart = apart,
                        .mode = from.mode};
    mixed.sensor[from.sensor].modes |= 1U << static_cast<unsigned>(from.mode);
    vectors += count;
    columns += from.count;
  }
  for (unsigned i = 0; i < work.sensors; ++i) {
    mixed.sensor[i].sensor = in_bytes(work.sensor[i], size);
    mixed.sensor[i].margin = margin_of(work.sensor[i], work.episodes);
  }

  // Rows that lie one behind the other and are short enough go by way of shared memory.
  const std::int64_t row = columns * size;
  unsigned most = mixed_spots / work.sensors;
  const bool rows = work.out_target == columns && row > 0 && row <= mixed_rows;
  if (rows) most = std::min(most, mixed_rows / static_cast<unsigned>(row));
  mixed.tile = targets_of_block(work, vectors, vectors_of_block, most, multiprocessors);
  mixed.tiles = (mixed.targets + mixed.tile - 1) / mixed.tile;
  mixed.by_tiles = kit::Divisor(mixed.tiles);
  mixed.by_tile = kit::Divisor(mixed.tile);
  mixed.rows = rows ? mixed.tile * static_cast<unsigned>(row) + 16 : 0;
  count_units(mixed, work.segments);
  return launch_mixed<Element, Time>(mixed, work.episodes, stream);
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
