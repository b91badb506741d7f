#include "measure/passes.h"

#include <algorithm>

#include "penstock/ops/iterate.h"

namespace ps::detail {

Passes::Passes(const Yardstick& yardstick, std::size_t largest)
    : yardstick_(yardstick),
      spare_(yardstick.device(), largest),
      stream_(yardstick.device()),
      back_(yardstick.device()),
      other_(yardstick.device()),
      before_(yardstick.device()),
      after_(yardstick.device()) {}

// A piece waits for an event of another stream and records one, as every piece of a pipeline does:
// work that follows other work back to back starts sooner than any pipeline can start it.
template <class Piece>
void Passes::enqueue(const Stream& stream, const Piece& piece) const {
  other_.record(before_);
  stream.wait(before_);
  piece();
  stream.record(after_);
}

template <class Piece>
void Passes::each(std::size_t chunk, const Piece& piece) const {
  const std::size_t bytes = yardstick_.bytes();
  for (std::size_t at = 0; at < bytes; at += chunk) piece(at, std::min(chunk, bytes - at));
}

void Passes::upload(std::size_t chunk) const {
  each(chunk, [&](std::size_t at, std::size_t n) {
    enqueue(stream_,
            [&] { copy(yardstick_.result().sub(at, n), yardstick_.input().sub(at, n), stream_); });
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
    enqueue(stream_, [&] { copy(spare(at, n), yardstick_.input().sub(at, n), stream_); });
    download_piece(at, n, back_);
  });
  stream_.synchronize();
  back_.synchronize();
}

void Passes::compute(std::size_t chunk, int rounds) const {
  each(chunk, [&](std::size_t at, std::size_t n) {
    const TensorView piece = floats(yardstick_.result().sub(at, n));
    enqueue(stream_, [&] { iterate({.in = piece, .out = piece, .rounds = rounds}, stream_); });
  });
  stream_.synchronize();
}

void Passes::device_copy(std::size_t chunk) const {
  each(chunk, [&](std::size_t at, std::size_t n) {
    enqueue(stream_, [&] { copy(spare(at, n), yardstick_.result().sub(at, n), stream_); });
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
  enqueue(stream,
          [&] { copy(yardstick_.output().sub(at, n), yardstick_.result().sub(at, n), stream); });
}

}  // namespace ps::detail
