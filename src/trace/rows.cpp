#include "trace/rows.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>

namespace ps::detail {
namespace {

// A row in use. `end_ns` is still occupied if the span is an instant.
struct Occupied {
  std::int64_t end_ns;
  bool instant;
  std::size_t row;

  auto operator<=>(const Occupied&) const = default;
  bool free_at(std::int64_t time_ns) const {
    return end_ns < time_ns || (end_ns == time_ns && !instant);
  }
};

template <class T>
using Smallest = std::priority_queue<T, std::vector<T>, std::greater<>>;

}  // namespace

std::vector<std::size_t> assign_rows(std::span<const Span> spans) {
  std::vector<std::size_t> by_begin(spans.size());
  std::iota(by_begin.begin(), by_begin.end(), std::size_t{0});
  std::ranges::stable_sort(by_begin, {}, [&](std::size_t i) { return spans[i].begin_ns; });

  std::vector<std::size_t> rows(spans.size());
  Smallest<Occupied> occupied;
  Smallest<std::size_t> free;
  for (const std::size_t i : by_begin) {
    const auto [begin_ns, end_ns] = spans[i];
    while (!occupied.empty() && occupied.top().free_at(begin_ns)) {
      free.push(occupied.top().row);
      occupied.pop();
    }
    if (free.empty()) free.push(occupied.size());
    rows[i] = free.top();
    free.pop();
    occupied.push({std::max(begin_ns, end_ns), end_ns <= begin_ns, rows[i]});
  }
  return rows;
}

}  // namespace ps::detail
