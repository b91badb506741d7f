#include "measure/passes.h"

#include <algorithm>
#include <string>

#include "penstock/base/error.h"
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

void Passes::upload(const Cut& cut) const {
  each(cut.chunk, [&](std::size_t at, std::size_t n) {
    copy(there(cut, at, n), yardstick_.input().sub(at, n), stream_);
  });
  stream_.synchronize();
}

void Passes::download(const Cut& cut) const {
  each(cut.chunk, [&](std::size_t at, std::size_t n) { download_piece(cut, at, n, stream_); });
  stream_.synchronize();
}

// The uploads go elsewhere, so that neither direction waits for the other's bytes.
void Passes::both_ways(const Cut& cut) const {
  each(cut.chunk, [&](std::size_t at, std::size_t n) {
    copy(spare(cut, at, n), yardstick_.input().sub(at, n), stream_);
    download_piece(cut, at, n, back_);
  });
  stream_.synchronize();
  back_.synchronize();
}

void Passes::compute(const Cut& cut, int rounds) const {
  each(cut.chunk, [&](std::size_t at, std::size_t n) { compute_piece(there(cut, at, n), rounds); });
  stream_.synchronize();
}

UploadAndCompute Passes::side_by_side(std::size_t chunk, int rounds) const {
  const Event begin(yardstick_.device(), {.timing = true});
  const Event uploaded(yardstick_.device(), {.timing = true});
  const Event computed(yardstick_.device(), {.timing = true});
  stream_.record(begin);
  back_.wait(begin);
  each(chunk, [&](std::size_t at, std::size_t n) {
    copy(spare({chunk}, at, n), yardstick_.input().sub(at, n), back_);
    compute_piece(there({chunk}, at, n), rounds);
  });
  back_.record(uploaded);
  stream_.record(computed);
  back_.synchronize();
  stream_.synchronize();
  return {Event::seconds_between(begin, uploaded), Event::seconds_between(begin, computed)};
}

void Passes::device_copy(const Cut& cut) const {
  each(cut.chunk,
       [&](std::size_t at, std::size_t n) { copy(spare(cut, at, n), there(cut, at, n), stream_); });
  stream_.synchronize();
}

void Passes::run(Engine engine, const Cut& cut, int rounds) const {
  switch (engine) {
    case Engine::upload:
      return upload(cut);
    case Engine::download:
      return download(cut);
    case Engine::compute:
      return compute(cut, rounds);
    case Engine::device_copy:
      return device_copy(cut);
    case Engine::disk:
    case Engine::host:
      break;
  }
  throw_invalid("engine", "upload, download, device copy or compute", std::string(name(engine)));
}

MemoryView Passes::there(const Cut& cut, std::size_t at, std::size_t n) const {
  const MemoryView memory = yardstick_.result();
  return memory.sub(cut.slots == 0 ? at : at / cut.chunk % cut.slots * cut.chunk, n);
}

// The spare memory holds one chunk at least, not all of them: without slots, all of it is used.
MemoryView Passes::spare(const Cut& cut, std::size_t at, std::size_t n) const {
  const std::size_t fit = std::max<std::size_t>(spare_.bytes() / cut.chunk, 1);
  const std::size_t slots = cut.slots == 0 ? fit : std::min(fit, cut.slots);
  return spare_.view().sub(at / cut.chunk % slots * cut.chunk, n);
}

void Passes::download_piece(const Cut& cut, std::size_t at, std::size_t n,
                            const Stream& stream) const {
  copy(yardstick_.output().sub(at, n), there(cut, at, n), stream);
}

void Passes::compute_piece(MemoryView memory, int rounds) const {
  const TensorView piece = floats(memory);
  iterate({.in = piece, .out = piece, .rounds = rounds}, stream_);
}

}  // namespace ps::detail
