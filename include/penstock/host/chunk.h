// How large a chunk to cut a transfer into.
#pragma once

#include <cstddef>
#include <span>

namespace ps {

// What one engine needs for a chunk of c bytes: overhead + c / bandwidth.
struct EngineCost {
  double overhead_seconds = 0;
  double bytes_per_second = 0;
};

// Least squares over measured (bytes, seconds) pairs in which relative errors count, so that small
// chunks weigh as much as large ones. Needs two different sizes; an overhead below zero becomes
// zero.
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
  std::size_t granularity = std::size_t{1} << 16;  // chunks are a multiple of this
  std::size_t minimum_chunks = 1;
  std::size_t maximum_bytes = 0;  // of one chunk; 0: the total
};

// Time of `total` bytes in chunks of `chunk` through stages that all overlap: the slowest stage
// runs without a pause, the others add their time for one chunk (fill and drain).
double predict_seconds(std::size_t total, std::size_t chunk, std::span<const EngineCost> stages);

// The chunk that minimises predict_seconds: near sqrt(total * overhead * bandwidth / (stages - 1)).
// With one stage there is no fill to save and the chunk is the largest allowed.
ChunkChoice choose_chunk(std::size_t total, std::span<const EngineCost> stages,
                         ChunkOptions options = {});

}  // namespace ps
