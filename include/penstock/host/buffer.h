// Owning buffers of page-locked host memory and of device memory.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "penstock/base/view.h"
#include "penstock/host/device.h"

namespace ps {

// Page-locked host memory, which all GPUs copy to and from directly. On the CPU device it is
// ordinary page-aligned memory. Allocating is slow and may synchronise the device, so allocate once
// and reuse the memory, for instance in a SlotRing. From 8 MiB on the memory is made of huge pages
// that all cores touch and CUDA then registers, which is faster than cudaHostAlloc; if the system
// refuses, it comes from cudaHostAlloc. The destructor does not wait for work enqueued on the
// bytes.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  // Throws InvalidArgument for zero bytes, OutOfMemory if the system refuses to lock that much.
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

// Device memory from cudaMalloc, for buffers that live long. Allocating and freeing may synchronise
// the device; use a Pool inside loops. The destructor does not wait for work enqueued on the bytes.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  // Throws InvalidArgument for zero bytes, OutOfMemory.
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
