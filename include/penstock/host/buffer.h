// Memory that is owned: page-locked host memory and device memory outside any pool.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "penstock/base/view.h"
#include "penstock/host/device.h"

namespace ps {

// Owns a run of page-locked memory that copies of `device` (and of every other GPU) reach directly.
// On the CPU device it is ordinary page-aligned memory. Allocation is slow (milliseconds, about
// 1.7 GB/s) and may stop the device: allocate once, recycle in a SlotRing. The bytes must outlive
// the work enqueued on them; the destructor does not wait.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  // Throws InvalidArgument on zero bytes, OutOfMemory when the system refuses to lock so much.
  PinnedBuffer(const Device& device, std::size_t bytes);
  ~PinnedBuffer();
  PinnedBuffer(PinnedBuffer&& other) noexcept;
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;

  MemoryView view() const { return view_; }
  std::size_t bytes() const { return view_.bytes; }

 private:
  std::shared_ptr<detail::Backend> backend_;
  MemoryView view_{};
};

// Owns device memory taken outside any pool: for buffers that live as long as the program does.
// Allocating and freeing may stop the device (cudaMalloc, cudaFree); nothing in a loop should.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(const Device& device, std::size_t bytes);
  ~DeviceBuffer();
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;

  MemoryView view() const { return view_; }
  std::size_t bytes() const { return view_.bytes; }

 private:
  std::shared_ptr<detail::Backend> backend_;
  MemoryView view_{};
};

}  // namespace ps
