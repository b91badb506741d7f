// All bytes of a yardstick once through one engine, with nothing beside it, or with another.
#pragma once

#include <cstddef>

#include "penstock/base/recorder.h"
#include "penstock/host/buffer.h"
#include "penstock/host/stream.h"
#include "penstock/measure/engines.h"
#include "penstock/measure/yardstick.h"

namespace ps::detail {

struct UploadAndCompute {
  double upload, compute;  // seconds from their common start
};

// Every pass overwrites the yardstick's output or result, and has completed when it returns.
class Passes {
 public:
  // Chunks may be as large as `largest`.
  Passes(const Yardstick& yardstick, std::size_t largest);

  void upload(std::size_t chunk) const;
  void download(std::size_t chunk) const;
  void both_ways(std::size_t chunk) const;
  void compute(std::size_t chunk, int rounds) const;
  void device_copy(std::size_t chunk) const;
  // Both at once, neither waiting for the other.
  UploadAndCompute side_by_side(std::size_t chunk, int rounds) const;

  // The engine's own pass, at the chunk that was best for it.
  void run(Engine engine, const Engines& engines) const;

 private:
  template <class Piece>
  void each(std::size_t chunk, const Piece& piece) const;
  MemoryView spare(std::size_t at, std::size_t n) const;
  void download_piece(std::size_t at, std::size_t n, const Stream& stream) const;
  void compute_piece(std::size_t at, std::size_t n, int rounds) const;

  const Yardstick& yardstick_;
  DeviceBuffer spare_;
  Stream stream_, back_;
};

}  // namespace ps::detail
