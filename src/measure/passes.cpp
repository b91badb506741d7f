#include "measure/passes.h"

#include <algorithm>

#include "penstock/ops/iterate.h"

namespace ps::detail {

Passes::Passes(const Yardstick& yardstick, std::size_t largest)
    : yardstick_(yardstick),
      spare_(yardstick.device(), largest),
      stream_(yardstick.device()),
      back_(yardstick.device()) {}

template <class Piece>
void Passes::each(std::size_t chunk, const Piece& piece) const {
  const std::size_t bytes = yardstick_.bytes();
  for (std::size_t at = 0; at < bytes; at += chunk) piece(at, std::min(chunk, bytes - at));
}

void Passes::upload(std::size_t chunk) const {
  each(chunk, [&](std::size_t at, std::size_t n) {
    copy(yardstick_.result().sub(at, n), yardstick_.input().sub(at, n), stream_);
  });
  stream_.synchronize();
}

void Passes::download(std::size_t chunk) const {
  each(chunk, [&](std::size_t at, std::size_t n) { download_piece(at, n, stream_); });
  stream_.synchronize();
}

// The uploads go elsewhere, so that neither direction waits for the other's bytes.
void Passes::both_ways(std::size_t chunk) const {
  each(chunk, [&](std::size_t at, std::size_t n) {
    copy(spare(at, n), yardstick_.input().sub(at, n), stream_);
    download_piece(at, n, back_);
  });
  stream_.synchronize();
  back_.synchronize();
}

void Passes::compute(std::size_t chunk, int rounds) const {
  each(chunk, [&](std::size_t at, std::size_t n) { compute_piece(at, n, rounds); });
  stream_.synchronize();
}

UploadAndCompute Passes::side_by_side(std::size_t chunk, int rounds) const {
  const Event begin(yardstick_.device(), {.timing = true});
  const Event uploaded(yardstick_.device(), {.timing = true});
  const Event computed(yardstick_.device(), {.timing = true});
  stream_.record(begin);
  back_.wait(begin);
  each(chunk, [&](std::size_t at, std::size_t n) {
    copy(spare(at, n), yardstick_.input().sub(at, n), back_);
    compute_piece(at, n, rounds);
  });
  back_.record(uploaded);
  stream_.record(computed);
  back_.synchronize();
  stream_.synchronize();
  return {Event::seconds_between(begin, uploaded), Event::seconds_between(begin, computed)};
}

void Passes::device_copy(std::size_t chunk) const {
  each(chunk, [&](std::size_t at, std::size_t n) {
    copy(spare(at, n), yardstick_.result().sub(at, n), stream_);
  });
  stream_.synchronize();
}

void Passes::run(Engine engine, const Engines& engines) const {
  const std::size_t chunk = engines.alone(engine).chunk;  // throws for the engines without a pass
  if (engine == Engine::upload) upload(chunk);
  if (engine == Engine::download) download(chunk);
  if (engine == Engine::compute) compute(chunk, engines.rounds);
  if (engine == Engine::device_copy) device_copy(chunk);
}

// Room for n bytes, moving on with `at` so that the cache does not hold it all.
MemoryView Passes::spare(std::size_t at, std::size_t n) const {
  const std::size_t offset = at % spare_.bytes();
  return spare_.view().sub(offset + n <= spare_.bytes() ? offset : 0, n);
}

void Passes::download_piece(std::size_t at, std::size_t n, const Stream& stream) const {
  copy(yardstick_.output().sub(at, n), yardstick_.result().sub(at, n), stream);
}

void Passes::compute_piece(std::size_t at, std::size_t n, int rounds) const {
  const TensorView piece = floats(yardstick_.result().sub(at, n));
  iterate({.in = piece, .out = piece, .rounds = rounds}, stream_);
}

}  // namespace ps::detail
