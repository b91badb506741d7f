// A large range of page-locked memory that is usable while most of it is still being locked.
#pragma once

#include <cstddef>
#include <memory>

#include "penstock/base/units.h"
#include "penstock/base/view.h"
#include "penstock/host/device.h"

namespace ps {

struct PinnedArenaOptions {
  std::size_t bytes = 0;
  // Bytes that are locked at a time, rounded up to huge pages (2 MiB).
  std::size_t piece_bytes = 128 * MiB;
  // Lock no more than wait() has asked for and one piece ahead: for contents whose size becomes
  // known while they are written. `bytes` is then the most that they may take, and costs addresses
  // only.
  bool on_demand = false;
};

// Reserves addresses at once. A thread of the library then takes memory for them, in huge pages,
// and page-locks it piece by piece, from the beginning to the end, or as far as it is asked for.
// The contents are zeros at first.
//
// copy() and fill() accept any part of the memory that is ready. CUDA itself refuses a copy across
// the border between two pieces, so code that calls cudaMemcpyAsync must split it at multiples of
// piece_bytes(). Kernels may read and write across borders.
//
// On the CPU device the memory is not locked, but taken in the same way. Thread-safe.
class PinnedArena {
 public:
  // Throws InvalidArgument for zero bytes, and OutOfMemory if there are no such addresses.
  PinnedArena(const Device& device, PinnedArenaOptions options);
  // Stops after the current piece, then unlocks and frees the memory. Does not wait for work
  // enqueued on the bytes.
  ~PinnedArena();
  PinnedArena(const PinnedArena&) = delete;
  PinnedArena& operator=(const PinnedArena&) = delete;

  // All bytes. Only the first ready() of them may be used.
  MemoryView view() const;
  std::size_t bytes() const;
  std::size_t piece_bytes() const;  // rounded up

  std::size_t ready() const;
  // Whether the first `bytes` may be used. Never blocks and reports no errors.
  bool ready(std::size_t bytes) const { return ready() >= bytes; }
  // Blocks until the first `bytes` may be used. If that cannot be, throws OutOfMemory, which names
  // the size and the limit, or DeviceError; bytes that are ready stay usable. Throws
  // InvalidArgument for more than bytes().
  void wait(std::size_t bytes) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ps
