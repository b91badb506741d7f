// A recorder that keeps every interval of a run, and computes busy times and gaps from them.
// Overlapping intervals count once: a busy time is the length of the union of the intervals.
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

// A span of time, without its end.
struct Span {
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
};

// The union of the spans as sorted, disjoint spans. Empty and reversed spans are dropped.
std::vector<Span> union_of(std::vector<Span> spans);
// The sum of the lengths.
std::int64_t length_ns(const std::vector<Span>& disjoint);

// Idle time of an engine between its first and its last interval.
struct Gaps {
  std::size_t count = 0;
  double total_seconds = 0;
  double largest_seconds = 0;
};

// How late a stage begins its items: the time from when it could have begun an item (the stage
// before it had finished the item, and it had finished its own previous item) until it did. On a
// GPU this is the latency of a kernel launch that waits for an event.
struct StartDelay {
  std::size_t count = 0;
  double median_seconds = 0;
  double total_seconds = 0;
};

// The delays of `stage`, which follows the stage `before`. Count 0 if the entries hold neither.
StartDelay start_delay(std::span<const TimelineEntry> entries, std::string_view before,
                       std::string_view stage);

// All functions may be called from several threads at once.
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

  std::vector<Span> busy(Engine engine) const;  // the union of the engine's intervals
  double busy_seconds(Engine engine) const;     // the length of that union
  double span_seconds() const;                  // from the first begin to the last end, all engines
  Gaps gaps(Engine engine) const;

 private:
  mutable std::mutex mutex_;
  std::vector<TimelineEntry> entries_;
  std::uint64_t lost_ = 0;
};

}  // namespace ps
