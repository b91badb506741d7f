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
  // Streams that may still use the pages. The library's own are not kept alive: of those that are
  // gone, only that there were some is remembered.
  std::vector<std::weak_ptr<detail::StreamImpl>> owned;
  bool some_are_gone = false;
  std::vector<Stream> borrowed;  // one handle per native stream

  void remember(const Stream& stream);
  void wait_for_streams() noexcept;
};

void GrowableBuffer::State::remember(const Stream& stream) {
  if (stream.owned()) {
    const auto gone = [](const auto& other) { return other.expired(); };
    if (std::erase_if(owned, gone) > 0) some_are_gone = true;
    const auto same = [&](const auto& other) { return other.lock().get() == &stream.impl(); };
    if (std::none_of(owned.begin(), owned.end(), same)) {
      owned.push_back(stream.impl().weak_from_this());
    }
  } else {
    const auto same = [&](const Stream& other) { return other.native() == stream.native(); };
    if (std::none_of(borrowed.begin(), borrowed.end(), same)) borrowed.push_back(stream);
  }
}

void GrowableBuffer::State::wait_for_streams() noexcept {
  for (const auto& weak : owned) {
    if (const auto stream = weak.lock()) {
      stream->drain();
    } else {
      some_are_gone = true;
    }
  }
  for (const Stream& stream : borrowed) stream.impl().drain();
  if (some_are_gone) pages->backend().drain();
}

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
  if (state_) state_->wait_for_streams();
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
  state_->remember(stream);
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
