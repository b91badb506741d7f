// The keys and values of all layers of a generation, in device memory that grows in place: the
// addresses of all rows that will ever be needed are reserved once, and a thread of the library
// maps memory behind them before the rows are appended. Growth copies nothing, and as long as
// the thread keeps ahead, neither the caller nor any stream waits for it.
//
//   ps::KVCache cache(device, {.layers = 32, .sequences = 4, .heads = 8, .dim = 128,
//                              .capacity = 131072});
//   cache.append(layer, {.k = k, .v = v}, stream);
//   ps::attention({.q = q, .k = cache.k(layer), .v = cache.v(layer), .out = out, .causal = true,
//                  .pool = &pool}, stream);
//
// All sequences have the same number of rows; pad shorter ones on the left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "penstock/base/dtype.h"
#include "penstock/base/view.h"
#include "penstock/host/device.h"
#include "penstock/host/stream.h"
#include "penstock/ops/append_kv.h"

namespace ps {

struct KVCacheOptions {
  std::int64_t layers = 1, sequences = 1;
  std::int64_t heads = 1, dim = 128;  // of k
  std::int64_t dim_v = 0;             // 0: dim
  DType dtype = DType::bf16;          // bf16, f16 or f32
  // The most rows of a sequence. They take addresses and no memory.
  std::int64_t capacity = 0;
  std::int64_t initial = 0;  // rows for which the constructor maps memory
  std::int64_t ahead = 256;  // rows that the thread keeps mapped beyond those that were appended
  // Memory is mapped in blocks of this size for K, and for V, of every layer; rounded up to pages
  // of the device, 2 MiB on GPUs. 0: 512 rows; fewer, down to 64, if these are above 32 MiB. While
  // the thread maps a block, a launch may have to wait for the driver: larger blocks disturb fewer
  // steps.
  std::size_t block_bytes = 0;
};

// The new rows of a layer, as in AppendKVOptions: k (B, Snew, Hk, D) and v (B, Snew, Hk, Dv).
struct KVRows {
  TensorView k{}, v{};
  TensorView cos{}, sin{};
  RotaryPairs pairs = RotaryPairs::halves;
  TensorView positions{};
  TensorView q{}, q_out{};
};

// Move-only. Not thread-safe.
class KVCache {
 public:
  // Throws InvalidArgument, OutOfMemory, or Unsupported if the device has no virtual memory
  // management.
  KVCache(const Device& device, const KVCacheOptions& options);
  // Waits for the streams passed to append() and use(), then gives the memory back.
  ~KVCache();
  KVCache(KVCache&&) noexcept;
  KVCache& operator=(KVCache&&) noexcept;

  // Appends rows to a layer by append_kv(). Does not wait for the device; waits for the thread if
  // the rows are beyond those that it has mapped. Refused while the stream is being captured, since
  // a graph would write the same rows again: capture append_kv() on whole_k() and whole_v(), with
  // lengths on the device, after reserve(), and call set_length() after the replays. Throws
  // InvalidArgument naming the argument, with the capacity if the cache is full, OutOfMemory,
  // DeviceError and Unsupported. The cache is then unchanged.
  void append(std::int64_t layer, const KVRows& rows, const Stream& stream);

  // The rows of a layer: (B, length(layer), Hk, D) and (B, length(layer), Hk, Dv), as views of the
  // strides (Hk * D, B * Hk * D, D, 1): all sequences' rows of one position lie next to each other.
  // They stay valid while the cache grows.
  TensorView k(std::int64_t layer) const;
  TensorView v(std::int64_t layer) const;
  // Views of all `capacity` rows, only the first reserved() of which may be used. They are for
  // operators that read the number of rows on the device. attention() then loads up to 128 rows
  // behind the last one, for which there is memory, too. While reserved() is 0, pass these views to
  // no operator.
  TensorView whole_k(std::int64_t layer) const;
  TensorView whole_v(std::int64_t layer) const;
  std::int64_t length(std::int64_t layer) const;

  // Maps memory for `rows` rows of all layers and returns when that is done, without waiting for
  // the device. Throws InvalidArgument beyond the capacity, and OutOfMemory.
  void reserve(std::int64_t rows);
  // Rows that may be used. More have memory, because attention() on whole_k() may load up to 128
  // rows behind the last one of a sequence.
  std::int64_t reserved() const;

  // Says that every layer has `rows` rows, after calls of append_kv() or append_attention() on
  // whole_k() and whole_v(), which may be captured, have appended them. Without it, length() does
  // not change, append() overwrites their rows and shrink() gives their memory back. Throws
  // InvalidArgument beyond reserved().
  void set_length(std::int64_t rows);

  // Removes the last rows of all layers that have more than this. Keeps the memory.
  void crop(std::int64_t rows);
  // Gives back the blocks that no rows need, when the work that the streams of this cache have been
  // given so far has completed. A thread of the library waits for it. Unmapping may wait for the
  // device. Refused while one of the streams is being captured. Throws DeviceError and OutOfMemory.
  void shrink();

  // For streams that use views of this cache and are passed to no append(): shrink() and the
  // destructor wait for their work, too. Streams are not kept alive: if one of the library is gone,
  // all work on the device counts; a borrowed stream must outlive the cache.
  void use(const Stream& stream);

  const KVCacheOptions& options() const;
  Device device() const;
  std::size_t mapped_bytes() const;
  // How many calls of append() and reserve() found the thread not far enough ahead, and waited.
  std::uint64_t waits() const;

 private:
  struct State;
  const State& state_of(std::int64_t layer) const;

  std::unique_ptr<State> state_;
};

}  // namespace ps
