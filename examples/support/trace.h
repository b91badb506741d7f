// Busy intervals of work that is enqueued by hand, without a Pipeline: events before and after each
// piece. Switched off it enqueues the work and nothing else, which is how timed runs use it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "penstock/host/event.h"
#include "penstock/host/stream.h"
#include "penstock/trace/timeline.h"

namespace ladder {

class Trace {
 public:
  // Off.
  Trace() = default;
  // On: intervals go to `timeline`, which must outlive this.
  Trace(const ps::Device& device, ps::Timeline& timeline);

  // Runs `enqueue`, which enqueues one piece of work of `engine` on `stream`.
  template <class Enqueue>
  void operator()(ps::Engine engine, std::uint64_t item, const ps::Stream& stream,
                  const Enqueue& enqueue) {
    if (timeline_ == nullptr) {
      enqueue();
      return;
    }
    const ps::Event begin = mark(stream);
    enqueue();
    pieces_.push_back({engine, item, begin, mark(stream)});
  }

  // For a Pipeline, which records by itself; null when off.
  ps::Recorder* recorder() const { return timeline_; }

  // Hands the intervals over; everything enqueued must have completed.
  void finish();

 private:
  struct Piece {
    ps::Engine engine;
    std::uint64_t item;
    ps::Event begin, end;
  };

  static ps::Event mark(const ps::Stream& stream);

  ps::Timeline* timeline_ = nullptr;
  std::optional<ps::Event> origin_;
  std::vector<Piece> pieces_;
};

}  // namespace ladder
