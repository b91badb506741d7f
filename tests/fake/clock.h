// Vector clocks over streams. Every operation enqueued on a stream is a tick of that stream; a
// clock says, for each stream, up to which tick everything has happened before.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace ps::test {

using StreamNumber = std::uint32_t;
using Tick = std::uint64_t;

// Few entries: what the host knows to be complete is left out of every clock (see HostClock).
class Clock {
 public:
  Tick at(StreamNumber stream) const {
    for (const auto& [number, tick] : entries_) {
      if (number == stream) return tick;
    }
    return 0;
  }

  void raise(StreamNumber stream, Tick tick) {
    for (auto& [number, value] : entries_) {
      if (number == stream) {
        value = std::max(value, tick);
        return;
      }
    }
    entries_.emplace_back(stream, tick);
  }

  void join(const Clock& other) {
    for (const auto& [number, tick] : other.entries_) raise(number, tick);
  }

  const std::vector<std::pair<StreamNumber, Tick>>& entries() const { return entries_; }

  template <class Predicate>
  void drop_if(Predicate predicate) {
    std::erase_if(entries_, predicate);
  }

 private:
  std::vector<std::pair<StreamNumber, Tick>> entries_;
};

// What the host has seen complete. The host is one party: its threads are taken to tell each other
// what they know (ThreadSanitizer checks that they do). Whatever is enqueued later follows all of
// it, so clocks need not carry it.
class HostClock {
 public:
  bool knows(StreamNumber stream, Tick tick) const {
    return stream < ticks_.size() && tick <= ticks_[stream];
  }

  void learn(StreamNumber stream, Tick tick) {
    if (ticks_.size() <= stream) ticks_.resize(stream + std::size_t{1});
    ticks_[stream] = std::max(ticks_[stream], tick);
  }

  void learn(const Clock& clock) {
    for (const auto& [number, tick] : clock.entries()) learn(number, tick);
  }

  void strip(Clock& clock) const {
    clock.drop_if([this](const auto& entry) { return knows(entry.first, entry.second); });
  }

 private:
  std::vector<Tick> ticks_;
};

}  // namespace ps::test
