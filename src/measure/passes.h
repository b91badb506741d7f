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

  void upload(const Cut& cut) const;
  void download(const Cut& cut) const;
  void both_ways(const Cut& cut) const;
  void compute(const Cut& cut, int rounds) const;
  void device_copy(const Cut& cut) const;
  // Both at once, neither waiting for the other.
  UploadAndCompute side_by_side(std::size_t chunk, int rounds) const;

  // The pass of one engine. Throws InvalidArgument for engines that have none.
  void run(Engine engine, const Cut& cut, int rounds) const;

 private:
  // Calls piece(at, bytes) for every chunk.
  template <class Piece>
  void each(std::size_t chunk, const Piece& piece) const;
  // The device memory of the chunk at `at`, in the result and in a second buffer.
  MemoryView there(const Cut& cut, std::size_t at, std::size_t n) const;
  MemoryView spare(const Cut& cut, std::size_t at, std::size_t n) const;
  void download_piece(const Cut& cut, std::size_t at, std::size_t n, const Stream& stream) const;
  void compute_piece(MemoryView memory, int rounds) const;

  const Yardstick& yardstick_;
  DeviceBuffer spare_;
  Stream stream_, back_;
};

}  // namespace ps::detail
