#include "penstock/host/growable.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "host/backend.h"
#include "host/stream_set.h"
#include "penstock/base/checked.h"
#include "penstock/base/error.h"

namespace ps {

struct GrowableBuffer::State {
  std::unique_ptr<detail::AddressRangeImpl> range;
  std::size_t mapped = 0;  // from the beginning
  std::size_t bytes = 0;
  detail::StreamSet streams{};

  void map(std::size_t wanted) {
    wanted = checked_mul(ceil_div(wanted, range->page()), range->page(), "bytes");
    if (wanted <= mapped) return;
    range->map(mapped, wanted - mapped);
    mapped = wanted;
  }
};

GrowableBuffer::GrowableBuffer(const Device& device, GrowableOptions options)
    : state_(std::make_unique<State>()) {
  if (options.capacity == 0) detail::throw_invalid("capacity", "at least 1 byte", "0");
  if (options.initial > options.capacity) {
    detail::throw_invalid("initial", fmt::format("at most the capacity {}", options.capacity),
                          std::to_string(options.initial));
  }
  state_->range = device.backend().make_address_range(options.capacity);
  state_->map(options.initial);
  state_->bytes = options.initial;
}

GrowableBuffer::~GrowableBuffer() {
  if (state_) state_->streams.drain(state_->range->backend());
}

GrowableBuffer::GrowableBuffer(GrowableBuffer&&) noexcept = default;

GrowableBuffer& GrowableBuffer::operator=(GrowableBuffer&& other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}

void GrowableBuffer::grow(std::size_t bytes, const Stream& stream) {
  const detail::AddressRangeImpl& range = *state_->range;
  if (bytes > range.capacity()) {
    detail::throw_invalid("bytes", fmt::format("at most the capacity {}", range.capacity()),
                          std::to_string(bytes));
  }
  detail::Backend& backend = state_->range->backend();
  if (&stream.impl().backend() != &backend) {
    detail::throw_invalid("stream", "a stream of " + backend.name(),
                          "one of " + stream.impl().backend().name());
  }
  state_->streams.add(stream);
  // Work enqueued before never touches the new pages, so mapping them needs no wait.
  state_->map(bytes);
  state_->bytes = std::max(state_->bytes, bytes);
}

MemoryView GrowableBuffer::view() const {
  return {state_->range->data(), state_->bytes, state_->range->backend().place()};
}
std::size_t GrowableBuffer::mapped() const { return state_->mapped; }
std::size_t GrowableBuffer::capacity() const { return state_->range->capacity(); }
std::size_t GrowableBuffer::page() const { return state_->range->page(); }

}  // namespace ps
