#include "support/engines.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "penstock/base/checked.h"
#include "penstock/base/error.h"
#include "penstock/base/units.h"
#include "penstock/host/buffer.h"
#include "penstock/host/stream.h"
#include "penstock/ops/iterate.h"
#include "support/timing.h"
#include "support/trace.h"

namespace ladder {
namespace {

using ps::Engine;

// From half the bytes, at most 64 MiB, down in steps of four.
std::vector<std::size_t> candidates(std::size_t bytes) {
  constexpr std::size_t largest = 64 * ps::MiB, smallest = 256 * ps::KiB;
  std::vector<std::size_t> sizes;
  for (std::size_t size = std::min(bytes / 2, largest); size >= smallest && sizes.size() < 4;
       size /= 4) {
    sizes.push_back(size);
  }
  return sizes;
}

// All bytes once through one engine, piece by piece.
class Passes {
 public:
  Passes(const ps::Device& device, const Data& data, std::size_t chunk)
      : data_(data),
        spare_(device, std::max(candidates(data.input().bytes).front(), chunk)),
        stream_(device),
        back_(device) {}

  void upload(std::size_t chunk) const {
    each(chunk, [&](std::size_t at, std::size_t n) { upload_piece(at, n); });
    stream_.synchronize();
  }

  void download(std::size_t chunk) const {
    each(chunk, [&](std::size_t at, std::size_t n) { download_piece(at, n, stream_); });
    stream_.synchronize();
  }

  // The uploads go elsewhere, so that neither direction waits for the other's bytes.
  void both_ways(std::size_t chunk) const {
    each(chunk, [&](std::size_t at, std::size_t n) {
      ps::copy(spare(at, n), data_.input().sub(at, n), stream_);
      download_piece(at, n, back_);
    });
    stream_.synchronize();
    back_.synchronize();
  }

  void compute(std::size_t chunk, int rounds) const {
    each(chunk, [&](std::size_t at, std::size_t n) { compute_piece(at, n, rounds); });
    stream_.synchronize();
  }

  void device_copy(std::size_t chunk) const {
    each(chunk, [&](std::size_t at, std::size_t n) { device_copy_piece(at, n); });
    stream_.synchronize();
  }

  // Everything in one stream: what each engine is busy when nothing overlaps.
  void sequential(std::size_t chunk, int rounds, Trace& trace) const {
    std::uint64_t item = 0;
    each(chunk, [&](std::size_t at, std::size_t n) {
      trace(Engine::upload, item, stream_, [&] { upload_piece(at, n); });
      trace(Engine::compute, item, stream_, [&] { compute_piece(at, n, rounds); });
      trace(Engine::device_copy, item, stream_, [&] { device_copy_piece(at, n); });
      trace(Engine::download, item, stream_, [&] { download_piece(at, n, stream_); });
      ++item;
    });
    stream_.synchronize();
    trace.finish();
  }

  std::size_t bytes() const { return data_.input().bytes; }

 private:
  template <class Piece>
  void each(std::size_t chunk, const Piece& piece) const {
    for (std::size_t at = 0; at < bytes(); at += chunk) piece(at, std::min(chunk, bytes() - at));
  }

  // Room for n bytes, moving on with `at` so that the cache does not hold it all.
  ps::MemoryView spare(std::size_t at, std::size_t n) const {
    const std::size_t offset = at % spare_.bytes();
    return spare_.view().sub(offset + n <= spare_.bytes() ? offset : 0, n);
  }

  void upload_piece(std::size_t at, std::size_t n) const {
    ps::copy(data_.result().sub(at, n), data_.input().sub(at, n), stream_);
  }
  void download_piece(std::size_t at, std::size_t n, const ps::Stream& stream) const {
    ps::copy(data_.output().sub(at, n), data_.result().sub(at, n), stream);
  }
  void compute_piece(std::size_t at, std::size_t n, int rounds) const {
    const ps::TensorView piece = floats(data_.result().sub(at, n));
    ps::iterate({.in = piece, .out = piece, .rounds = rounds}, stream_);
  }
  void device_copy_piece(std::size_t at, std::size_t n) const {
    ps::copy(spare(at, n), data_.result().sub(at, n), stream_);
  }

  const Data& data_;
  ps::DeviceBuffer spare_;
  ps::Stream stream_, back_;
};

Alone best_of(std::size_t bytes, const std::stop_token& stop,
              const std::function<void(std::size_t)>& pass) {
  Alone best{.seconds = std::numeric_limits<double>::infinity(), .chunk = 0, .cost = {}};
  std::vector<ps::CostSample> samples;
  for (const std::size_t chunk : candidates(bytes)) {
    const double seconds = median_seconds(3, stop, [&] { pass(chunk); });
    const auto pieces = static_cast<double>(ps::ceil_div(bytes, chunk));
    samples.push_back({chunk, seconds / pieces});
    if (seconds < best.seconds) best.seconds = seconds, best.chunk = chunk;
  }
  try {
    best.cost = ps::fit_cost(samples);
  } catch (const ps::InvalidArgument&) {
    // On a machine busy with other things large pieces may seem no slower than small ones.
    best.cost = {.bytes_per_second = static_cast<double>(bytes) / best.seconds};
  }
  return best;
}

// The rounds for which compute takes `wanted` seconds.
int balanced_rounds(const Passes& passes, std::size_t chunk, double wanted,
                    const std::stop_token& stop) {
  int rounds = 1;
  for (int step = 0; step < 6; ++step) {
    const double seconds = median_seconds(1, stop, [&] { passes.compute(chunk, rounds); });
    // Small counts are bound by memory and say little: go up by at most 16 at a time.
    const double scale = std::clamp(wanted / seconds, 1.0 / 16, 16.0);
    const int next = std::max(1, static_cast<int>(std::lround(rounds * scale)));
    if (std::abs(next - rounds) <= rounds / 50) return next;
    rounds = next;
  }
  return rounds;
}

std::size_t index(Engine engine) { return static_cast<std::size_t>(engine); }

bool contains(std::span<const Engine> engines, Engine engine) {
  return std::ranges::find(engines, engine) != engines.end();
}

}  // namespace

const Alone& Engines::alone(Engine engine) const {
  switch (engine) {
    case Engine::upload:
      return upload;
    case Engine::download:
      return download;
    case Engine::device_copy:
      return device_copy;
    default:
      return compute;
  }
}

double Engines::sequential_seconds(std::span<const Engine> engines) const {
  double sum = 0;
  for (const Engine engine : engines) sum += busy[index(engine)];
  return sum;
}

double Engines::floor_seconds(std::span<const Engine> engines) const {
  double floor = cores > 0 ? sequential_seconds(engines) / cores : 0;
  for (const Engine engine : engines) floor = std::max(floor, alone(engine).seconds);
  if (contains(engines, Engine::upload) && contains(engines, Engine::download)) {
    floor = std::max(floor, both_ways.seconds);
  }
  return floor;
}

double Engines::ideal_seconds(std::span<const Engine> engines) const {
  double sum = 0, slowest = 0;
  for (const Engine engine : engines) {
    sum += alone(engine).seconds;
    slowest = std::max(slowest, alone(engine).seconds);
  }
  return floor_seconds(engines) + (sum - slowest) / static_cast<double>(chunks);
}

Engines measure_engines(const ps::Device& device, const Data& data, std::size_t chunk,
                        const std::stop_token& stop) {
  const Passes passes(device, data, chunk);
  const std::size_t bytes = passes.bytes();
  Engines engines;
  engines.upload = best_of(bytes, stop, [&](std::size_t c) { passes.upload(c); });
  engines.download = best_of(bytes, stop, [&](std::size_t c) { passes.download(c); });
  engines.both_ways = best_of(bytes, stop, [&](std::size_t c) { passes.both_ways(c); });
  engines.device_copy = best_of(bytes, stop, [&](std::size_t c) { passes.device_copy(c); });
  engines.rounds = balanced_rounds(passes, engines.upload.chunk, engines.upload.seconds, stop);
  engines.compute = best_of(bytes, stop, [&](std::size_t c) { passes.compute(c, engines.rounds); });
  if (device.kind() == ps::DeviceKind::cpu) engines.cores = device.capabilities().multiprocessors;

  if (chunk == 0) {
    const std::array stages{engines.upload.cost, engines.compute.cost, engines.download.cost};
    const std::size_t step = std::min(ps::MiB, candidates(bytes).back());
    const std::size_t most = candidates(bytes).front();
    chunk =
        ps::choose_chunk(bytes, stages, {.granularity = step, .maximum_bytes = most}).chunk_bytes;
  }
  engines.chunk = chunk;
  engines.chunks = ps::ceil_div(bytes, chunk);

  ps::Timeline timeline;
  Trace trace(device, timeline);
  passes.sequential(chunk, engines.rounds, trace);
  for (const Engine engine :
       {Engine::upload, Engine::compute, Engine::device_copy, Engine::download}) {
    engines.busy[index(engine)] = timeline.busy_seconds(engine);
  }
  return engines;
}

}  // namespace ladder
