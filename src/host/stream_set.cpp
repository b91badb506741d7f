#include "host/stream_set.h"

#include <algorithm>

namespace ps::detail {

void StreamSet::add(const Stream& stream) {
  if (stream.owned()) {
    const auto gone = [](const auto& other) { return other.expired(); };
    if (std::erase_if(owned_, gone) > 0) some_are_gone_ = true;
    const auto same = [&](const auto& other) { return other.lock().get() == &stream.impl(); };
    if (std::none_of(owned_.begin(), owned_.end(), same)) {
      owned_.push_back(stream.impl().weak_from_this());
    }
  } else {
    const auto same = [&](const Stream& other) { return other.native() == stream.native(); };
    if (std::none_of(borrowed_.begin(), borrowed_.end(), same)) borrowed_.push_back(stream);
  }
}

void StreamSet::drain(Backend& backend) noexcept {
  for (const auto& weak : owned_) {
    if (const auto stream = weak.lock()) {
      stream->drain();
    } else {
      some_are_gone_ = true;
    }
  }
  for (const Stream& stream : borrowed_) stream.impl().drain();
  if (some_are_gone_) backend.drain();
}

StreamSet::Mark StreamSet::mark(const Device& device) {
  Mark made{.events = {}, .all = some_are_gone_};
  const auto record = [&](StreamImpl& stream) {
    stream.refuse_capture("giving back memory that the stream has used,");
    const Event& event = made.events.emplace_back(device);
    stream.record(event.impl());
  };
  for (const auto& weak : owned_) {
    if (const auto stream = weak.lock()) {
      record(*stream);
    } else {
      made.all = true;
    }
  }
  for (const Stream& stream : borrowed_) record(stream.impl());
  return made;
}

}  // namespace ps::detail
