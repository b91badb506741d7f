#include "penstock/measure/interleaved.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "penstock/base/error.h"

namespace ps {

std::vector<std::vector<double>> interleaved_seconds(const Stream& stream,
                                                     const std::vector<EnqueuePiece>& work,
                                                     const InterleavedOptions& options) {
  std::vector<Event> marks;  // before and behind every piece
  while (marks.size() <= work.size()) {
    marks.emplace_back(stream.device(), EventOptions{.timing = true});
  }
  std::vector<std::vector<double>> seconds(work.size());
  std::vector<std::size_t> order(work.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // The same orders in every run. NOLINTNEXTLINE(bugprone-random-generator-seed)
  std::mt19937 random(20260915);
  std::size_t number = 0;
  for (int turn = 0; turn < options.warm_up + options.turns; ++turn) {
    if (options.stop.stop_requested()) throw Cancelled();
    if (options.hold) options.hold();
    stream.record(marks[0]);
    std::ranges::shuffle(order, random);
    for (std::size_t i = 0; i < work.size(); ++i) {
      work[order[i]](number++);
      stream.record(marks[i + 1]);
    }
    stream.synchronize();
    if (turn < options.warm_up) continue;
    for (std::size_t i = 0; i < work.size(); ++i) {
      seconds[order[i]].push_back(Event::seconds_between(marks[i], marks[i + 1]));
    }
  }
  return seconds;
}

}  // namespace ps
