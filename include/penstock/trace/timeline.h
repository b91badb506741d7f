// What every engine did and when: intervals, and the arithmetic on them. Busy times are lengths of
// unions, so nothing is counted twice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/base/recorder.h"

namespace ps {

struct TimelineEntry {
  Engine engine = Engine::host;
  std::string stage;
  std::uint64_t item = 0;
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
};

// A half-open span of time.
struct Span {
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
};

// Sorted, disjoint cover of the given spans. Empty and reversed spans are dropped.
std::vector<Span> union_of(std::vector<Span> spans);
std::int64_t length_ns(const std::vector<Span>& disjoint);

// Idle time of one engine between its first and its last work.
struct Gaps {
  std::size_t count = 0;
  double total_seconds = 0;
  double largest_seconds = 0;
};

// What starting costs: the time from when an item had left the stage before, and this stage its
// last item, until this stage began it. On a GPU that is the latency of a launch behind an event.
struct StartDelay {
  std::size_t count = 0;
  double median_seconds = 0;
  double total_seconds = 0;
};

StartDelay start_delay(std::span<const TimelineEntry> entries, std::string_view before,
                       std::string_view stage);

class Timeline final : public Recorder {
 public:
  void record(const Interval& interval) noexcept override;

  std::vector<TimelineEntry> entries() const;  // sorted by begin
  void clear();

  // Records that are missing from the timeline: memory ran out, or a DeviceTrace lost them. Busy
  // times are then too short, and gaps too long.
  std::uint64_t lost_records() const;
  bool complete() const { return lost_records() == 0; }
  void add_lost(std::uint64_t records) noexcept;

  std::vector<Span> busy(Engine engine) const;  // the union of its intervals
  double busy_seconds(Engine engine) const;     // length of that union
  double span_seconds() const;                  // first begin to last end, over all engines
  Gaps gaps(Engine engine) const;

 private:
  mutable std::mutex mutex_;
  std::vector<TimelineEntry> entries_;
  std::uint64_t lost_ = 0;
};

}  // namespace ps
