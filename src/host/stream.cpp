#include "penstock/host/stream.h"

#include <fmt/format.h>

#include <utility>

#include "host/backend.h"
#include "host/failure.h"
#include "host/fork.h"
#include "penstock/base/error.h"

namespace ps {

Stream::Stream(const Device& device, StreamOptions options)
    : impl_(device.backend().make_stream(options)) {}

void Stream::call(std::function<void()> function) const {
  detail::refuse_after_fork();
  if (!function) detail::throw_invalid("function", "something to call", "an empty function");
  impl_->call(detail::bind_failure(std::move(function)));
}

void Stream::notify(std::function<void()> function) const {
  detail::refuse_after_fork();
  if (!function) detail::throw_invalid("function", "something to call", "an empty function");
  impl_->notify(detail::bind_failure(std::move(function)));
}

void Stream::wait(const Event& event) const {
  detail::refuse_after_fork();
  // A GPU cannot wait for a CPU event by itself, nor the other way round: a host function does.
  if (event.impl().backend().kind() != impl_->backend().kind()) {
    impl_->call(detail::bind_failure([event] { event.synchronize(); }));
  } else {
    impl_->wait(event.impl());
  }
}

void Stream::record(const Event& event) const {
  detail::refuse_after_fork();
  impl_->record(event.impl());
}

void Stream::synchronize() const {
  detail::refuse_after_fork();
  impl_->synchronize();
}

bool Stream::done() const { return impl_->done(); }
Device Stream::device() const { return impl_->backend().device(); }
bool Stream::owned() const { return impl_->owned(); }
void* Stream::native() const { return impl_->native(); }

Stream borrow_native(const Device& device, void* native) {
  return Stream(device.backend().borrow_stream(native));
}

namespace {

void check_memory(const char* argument, MemoryView view, detail::Backend& backend,
                  bool allow_pageable) {
  if (view.data == nullptr && view.bytes > 0) {
    detail::throw_invalid(argument, "a pointer", fmt::format("null with {} bytes", view.bytes));
  }
  if (backend.kind() == DeviceKind::cpu) {
    if (view.place.memory == Memory::device && view.place.device != cpu_index) {
      detail::throw_invalid(argument, "memory the CPU can reach", name(view.place));
    }
  } else if (view.place.memory == Memory::host && !allow_pageable) {
    detail::throw_invalid(argument,
                          "page-locked or device memory (pageable memory makes the call block; "
                          "CopyOptions::allow_pageable accepts that)",
                          name(view.place));
  } else if (view.place.memory == Memory::device && view.place.device == cpu_index) {
    detail::throw_invalid(argument, "page-locked memory or memory of a GPU", name(view.place));
  }
}

}  // namespace

void copy(MemoryView dst, MemoryView src, const Stream& stream, CopyOptions options) {
  detail::refuse_after_fork();
  detail::Backend& backend = stream.impl().backend();
  if (dst.bytes != src.bytes) {
    detail::throw_invalid("dst", fmt::format("{} bytes, as many as src", src.bytes),
                          fmt::format("{} bytes", dst.bytes));
  }
  check_memory("dst", dst, backend, options.allow_pageable);
  check_memory("src", src, backend, options.allow_pageable);
  if (src.bytes > 0) stream.impl().copy(dst, src);
}

void fill(MemoryView dst, std::uint8_t value, const Stream& stream) {
  detail::refuse_after_fork();
  check_memory("dst", dst, stream.impl().backend(), false);
  if (dst.bytes > 0) stream.impl().fill(dst, value);
}

}  // namespace ps
