#include "penstock/trace/timeline.h"

#include <algorithm>
#include <map>
#include <new>
#include <numeric>
#include <optional>

namespace ps {
namespace {

constexpr double ns = 1e-9;

double seconds(std::int64_t nanoseconds) { return static_cast<double>(nanoseconds) * ns; }

std::vector<Span> spans_of(const std::vector<TimelineEntry>& entries,
                           std::optional<Engine> engine) {
  std::vector<Span> spans;
  for (const TimelineEntry& entry : entries) {
    if (!engine || entry.engine == *engine) spans.push_back({entry.begin_ns, entry.end_ns});
  }
  return spans;
}

}  // namespace

std::vector<Span> union_of(std::vector<Span> spans) {
  std::erase_if(spans, [](const Span& span) { return span.end_ns <= span.begin_ns; });
  std::sort(spans.begin(), spans.end(),
            [](const Span& a, const Span& b) { return a.begin_ns < b.begin_ns; });
  std::vector<Span> cover;
  for (const Span& span : spans) {
    if (!cover.empty() && span.begin_ns <= cover.back().end_ns) {
      cover.back().end_ns = std::max(cover.back().end_ns, span.end_ns);
    } else {
      cover.push_back(span);
    }
  }
  return cover;
}

std::int64_t length_ns(const std::vector<Span>& disjoint) {
  std::int64_t length = 0;
  for (const Span& span : disjoint) length += span.end_ns - span.begin_ns;
  return length;
}

StartDelay start_delay(std::span<const TimelineEntry> entries, std::string_view before,
                       std::string_view stage) {
  // A stage may have several intervals for an item: take the span from first to last.
  std::map<std::uint64_t, Span> left, begun;
  for (const TimelineEntry& entry : entries) {
    if (entry.stage != before && entry.stage != stage) continue;
    auto& spans = entry.stage == stage ? begun : left;
    const auto [at, is_new] = spans.try_emplace(entry.item, Span{entry.begin_ns, entry.end_ns});
    if (!is_new) {
      at->second.begin_ns = std::min(at->second.begin_ns, entry.begin_ns);
      at->second.end_ns = std::max(at->second.end_ns, entry.end_ns);
    }
  }
  std::vector<std::int64_t> delays;
  std::optional<std::int64_t> last_end;
  for (const auto& [item, span] : begun) {
    if (const auto from = left.find(item); from != left.end()) {
      const std::int64_t ready =
          std::max(from->second.end_ns, last_end.value_or(from->second.end_ns));
      delays.push_back(std::max<std::int64_t>(span.begin_ns - ready, 0));
    }
    last_end = span.end_ns;
  }
  if (delays.empty()) return {};
  std::ranges::sort(delays);
  return {.count = delays.size(),
          .median_seconds = seconds(delays[delays.size() / 2]),
          .total_seconds = seconds(std::reduce(delays.begin(), delays.end()))};
}

void Timeline::record(const Interval& interval) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    entries_.push_back({interval.engine, std::string(interval.stage), interval.item,
                        interval.begin_ns, interval.end_ns});
  } catch (const std::bad_alloc&) {
    ++lost_;  // a run must not fail because its recording does
  }
}

std::vector<TimelineEntry> Timeline::entries() const {
  std::vector<TimelineEntry> sorted;
  {
    const std::lock_guard lock(mutex_);
    sorted = entries_;
  }
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.begin_ns < b.begin_ns; });
  return sorted;
}

std::uint64_t Timeline::lost_records() const {
  const std::lock_guard lock(mutex_);
  return lost_;
}

void Timeline::add_lost(std::uint64_t records) noexcept {
  const std::lock_guard lock(mutex_);
  lost_ += records;
}

void Timeline::clear() {
  const std::lock_guard lock(mutex_);
  entries_.clear();
  lost_ = 0;
}

std::vector<Span> Timeline::busy(Engine engine) const {
  const std::lock_guard lock(mutex_);
  return union_of(spans_of(entries_, engine));
}

double Timeline::busy_seconds(Engine engine) const { return seconds(length_ns(busy(engine))); }

double Timeline::span_seconds() const {
  std::vector<Span> cover;
  {
    const std::lock_guard lock(mutex_);
    cover = union_of(spans_of(entries_, std::nullopt));
  }
  return cover.empty() ? 0 : seconds(cover.back().end_ns - cover.front().begin_ns);
}

Gaps Timeline::gaps(Engine engine) const {
  const std::vector<Span> cover = busy(engine);
  Gaps gaps;
  for (std::size_t i = 1; i < cover.size(); ++i) {
    const double idle = seconds(cover[i].begin_ns - cover[i - 1].end_ns);
    ++gaps.count;
    gaps.total_seconds += idle;
    gaps.largest_seconds = std::max(gaps.largest_seconds, idle);
  }
  return gaps;
}

}  // namespace ps
