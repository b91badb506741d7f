#include "penstock/host/growable.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "host/backend.h"
#include "penstock/base/error.h"

namespace ps {

struct GrowableBuffer::State {
  std::unique_ptr<detail::GrowableImpl> pages;
  std::size_t bytes = 0;
  std::vector<Stream> streams;  // that may still use the pages
};

GrowableBuffer::GrowableBuffer(const Device& device, GrowableOptions options)
    : state_(std::make_unique<State>()) {
  if (options.capacity == 0) detail::throw_invalid("capacity", "at least 1 byte", "0");
  if (options.initial > options.capacity) {
    detail::throw_invalid("initial", fmt::format("at most the capacity {}", options.capacity),
                          std::to_string(options.initial));
  }
  state_->pages = device.backend().make_growable(options.capacity);
  state_->pages->map(options.initial);
  state_->bytes = options.initial;
}

GrowableBuffer::~GrowableBuffer() {
  if (!state_) return;
  for (const Stream& stream : state_->streams) {
    try {
      stream.synchronize();
    } catch (...) {
      // A destructor cannot report; the stream's owner learns of the failure from its next call.
    }
  }
}

GrowableBuffer::GrowableBuffer(GrowableBuffer&&) noexcept = default;

GrowableBuffer& GrowableBuffer::operator=(GrowableBuffer&& other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}

void GrowableBuffer::grow(std::size_t bytes, const Stream& stream) {
  detail::GrowableImpl& pages = *state_->pages;
  if (bytes > pages.capacity()) {
    detail::throw_invalid("bytes", fmt::format("at most the capacity {}", pages.capacity()),
                          std::to_string(bytes));
  }
  if (&stream.impl().backend() != &pages.backend()) {
    detail::throw_invalid("stream", "a stream of " + pages.backend().name(),
                          "one of " + stream.impl().backend().name());
  }
  auto& streams = state_->streams;
  if (std::find(streams.begin(), streams.end(), stream) == streams.end()) streams.push_back(stream);
  // Work enqueued before never touches the new pages, so mapping them needs no wait.
  pages.map(bytes);
  state_->bytes = std::max(state_->bytes, bytes);
}

MemoryView GrowableBuffer::view() const {
  return {state_->pages->data(), state_->bytes, state_->pages->backend().place()};
}
std::size_t GrowableBuffer::mapped() const { return state_->pages->mapped(); }
std::size_t GrowableBuffer::capacity() const { return state_->pages->capacity(); }
std::size_t GrowableBuffer::page() const { return state_->pages->page(); }

}  // namespace ps
