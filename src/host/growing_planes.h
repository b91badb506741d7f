// Arrays of rows, the planes, that grow together in one reserved range of addresses. A thread of
// the library maps memory ahead of the rows that are needed, so that growth costs the caller
// nothing as long as the thread keeps ahead.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "host/backend.h"
#include "host/stream_set.h"
#include "host/worker.h"

namespace ps::detail {

struct GrowingPlanesOptions {
  std::vector<std::size_t> row_bytes;  // of each plane, at least 1
  std::size_t capacity = 1;            // rows of a plane for which addresses are reserved
  std::size_t block_bytes = 1;         // of a plane that are mapped at a time; rounded up to pages
  std::size_t ahead = 0;               // rows
};

// One thread at a time may call.
class GrowingPlanes {
 public:
  // Throws InvalidArgument, OutOfMemory, or Unsupported without virtual memory management.
  GrowingPlanes(const Device& device, GrowingPlanesOptions options);
  // Waits for the streams passed to use(), then unmaps.
  ~GrowingPlanes();
  GrowingPlanes(const GrowingPlanes&) = delete;
  GrowingPlanes& operator=(const GrowingPlanes&) = delete;

  std::byte* plane(std::size_t index) const { return range_->data() + index * plane_bytes_; }

  // Returns when `rows` rows of all planes are mapped, at most the capacity, and lets the thread
  // map `ahead` more. Does not wait for the device. Throws OutOfMemory or DeviceError, after which
  // as much is mapped as before, and a later call tries again.
  void need(std::size_t rows);

  // From now on, memory that shrink() unmaps, and the destructor, wait for the stream's work.
  void use(const Stream& stream) { streams_.add(stream); }

  // Blocks without any of the first `rows` rows are not needed any more. The thread unmaps them
  // when all work that the streams have been given so far has completed, unless they are needed
  // again before. Throws DeviceError, OutOfMemory, and Unsupported while one of the streams is
  // being captured.
  void shrink(std::size_t rows);

  std::size_t mapped_bytes() const;
  std::size_t mapped_rows() const;
  std::size_t block_bytes() const { return block_bytes_; }
  // How many calls of need() found the thread not far enough ahead.
  std::uint64_t waits() const { return waits_; }
  Backend& backend() const { return range_->backend(); }

 private:
  std::size_t rows_mapped() const;
  std::optional<std::size_t> next_to_map() const;
  std::optional<std::size_t> next_to_unmap() const;
  void start();
  void run() noexcept;
  void map(std::size_t plane, std::unique_lock<std::mutex>& lock);
  void unmap(std::size_t plane, std::unique_lock<std::mutex>& lock);
  bool may_unmap(std::unique_lock<std::mutex>& lock);

  std::vector<std::size_t> row_bytes_;
  std::size_t capacity_, block_bytes_ = 0, ahead_, plane_bytes_ = 0;
  std::unique_ptr<AddressRangeImpl> range_;  // mapped and unmapped by the thread alone
  StreamSet streams_;
  std::uint64_t waits_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::size_t> blocks_;  // mapped of each plane
  std::vector<std::size_t> before_;  // those when need() was called last
  std::uint64_t calls_ = 0;          // of need() that left something to map
  std::size_t needed_ = 0;           // rows
  std::size_t wanted_ = 0;           // rows: `needed_` and those ahead
  // The most rows wanted since shrink() was called last: the work that it waits for is not all that
  // uses them.
  std::size_t kept_ = 0;
  bool running_ = false, closing_ = false;
  bool short_of_memory_ = false;  // nothing is mapped ahead until more is needed
  std::exception_ptr failure_;    // of mapping what is needed
  std::optional<StreamSet::Mark> shrinking_;

  Worker worker_;
};

}  // namespace ps::detail
