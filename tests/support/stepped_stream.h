// A CPU stream whose work completes one piece at a time, when the test says so.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

#include "penstock/host/stream.h"

namespace ps::test {

class SteppedStream {
 public:
  ~SteppedStream() { complete_all(); }
  SteppedStream() = default;
  SteppedStream(const SteppedStream&) = delete;
  SteppedStream& operator=(const SteppedStream&) = delete;

  // Enqueues a piece of work that lasts until complete_next().
  void enqueue() {
    stream_.call([allowed = allowed_, piece = ++enqueued_] {
      while (*allowed < piece) std::this_thread::yield();
    });
  }

  // Completes the oldest piece, and what was enqueued before the next one.
  void complete_next() {
    ++*allowed_;
    while (next_mark_ < marks_.size() && marks_[next_mark_].first <= *allowed_) {
      marks_[next_mark_++].second.synchronize();
    }
  }
  void complete_all() {
    while (pending() != 0) complete_next();
    stream_.synchronize();
  }
  std::size_t pending() const { return enqueued_ - *allowed_; }

  // To be called after something was enqueued behind the last piece that complete_next() has to
  // wait for.
  void mark() {
    const Event event(stream_.device());
    stream_.record(event);
    marks_.emplace_back(enqueued_, event);
  }

  const Stream& stream() const { return stream_; }

 private:
  Stream stream_{Device::cpu()};
  std::shared_ptr<std::atomic<std::size_t>> allowed_ =
      std::make_shared<std::atomic<std::size_t>>(0);
  std::size_t enqueued_ = 0, next_mark_ = 0;
  std::vector<std::pair<std::size_t, Event>> marks_;
};

}  // namespace ps::test
