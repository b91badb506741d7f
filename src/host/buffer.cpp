#include "penstock/host/buffer.h"

#include <utility>

#include "host/backend.h"
#include "penstock/base/error.h"

namespace ps {
namespace {

void check_bytes(std::size_t bytes) {
  constexpr std::size_t most = std::size_t{1} << 62;
  if (bytes == 0 || bytes > most) {
    detail::throw_invalid("bytes", "between 1 and 2^62", std::to_string(bytes));
  }
}

}  // namespace

PinnedBuffer::PinnedBuffer(const Device& device, std::size_t bytes)
    : backend_(device.shared_backend()) {
  check_bytes(bytes);
  view_ = {static_cast<std::byte*>(backend_->allocate_pinned(bytes)), bytes, {Memory::pinned}};
}

PinnedBuffer::~PinnedBuffer() {
  if (view_.data != nullptr) backend_->free_pinned(view_.data, view_.bytes);
}

PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept
    : backend_(std::move(other.backend_)), view_(std::exchange(other.view_, {})) {}

PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  std::swap(backend_, other.backend_);
  std::swap(view_, other.view_);
  return *this;
}

DeviceBuffer::DeviceBuffer(const Device& device, std::size_t bytes)
    : backend_(device.shared_backend()) {
  check_bytes(bytes);
  view_ = {static_cast<std::byte*>(backend_->allocate_device(bytes)), bytes, device.place()};
}

DeviceBuffer::~DeviceBuffer() {
  if (view_.data != nullptr) backend_->free_device(view_.data, view_.bytes);
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : backend_(std::move(other.backend_)), view_(std::exchange(other.view_, {})) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(backend_, other.backend_);
  std::swap(view_, other.view_);
  return *this;
}

}  // namespace ps
