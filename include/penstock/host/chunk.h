// Chooses the chunk size of a transfer that overlaps with computation.
#pragma once

#include <cstddef>
#include <span>

namespace ps {

// The time of one engine for a chunk of c bytes is overhead_seconds + c / bytes_per_second.
struct EngineCost {
  double overhead_seconds = 0;
  double bytes_per_second = 0;
};

// Fits a cost to measured times by least squares of the relative errors, so that small chunks weigh
// as much as large ones. Needs at least two different sizes. A negative overhead becomes zero.
struct CostSample {
  std::size_t bytes = 0;
  double seconds = 0;
};
EngineCost fit_cost(std::span<const CostSample> samples);

struct ChunkChoice {
  std::size_t chunk_bytes = 0;
  std::size_t chunks = 0;
  double predicted_seconds = 0;
};

struct ChunkOptions {
  std::size_t granularity = std::size_t{1} << 16;  // chunk sizes are multiples of this, in bytes
  std::size_t minimum_chunks = 1;
  std::size_t maximum_bytes = 0;  // of one chunk; 0: the total
};

// Seconds for `total` bytes in chunks of `chunk` bytes through stages that all overlap: the slowest
// stage runs without a pause, and each other stage adds its time for one chunk (fill and drain).
double predict_seconds(std::size_t total, std::size_t chunk, std::span<const EngineCost> stages);

// The chunk that minimises predict_seconds(), which is near
// sqrt(total * overhead * bandwidth / (stages - 1)). With one stage it is the largest chunk
// allowed.
ChunkChoice choose_chunk(std::size_t total, std::span<const EngineCost> stages,
                         ChunkOptions options = {});

}  // namespace ps
