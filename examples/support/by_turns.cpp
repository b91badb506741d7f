#include "support/by_turns.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

#include "penstock/measure/cancelled.h"
#include "penstock/measure/timing.h"
#include "support/spin.h"

namespace ladder {
namespace {

// Longer than enqueuing the first piece of work takes.
constexpr double held_seconds = 100e-6;

}  // namespace

std::vector<double> by_turns(const ps::Stream& stream, const std::vector<Enqueue>& work,
                             const TurnsOptions& options) {
  std::vector<ps::Event> marks;  // before and behind every piece
  while (marks.size() <= work.size())
    marks.emplace_back(stream.device(), ps::EventOptions{.timing = true});
  std::vector<std::vector<double>> seconds(work.size());
  std::vector<std::size_t> order(work.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // The same orders in every run. NOLINTNEXTLINE(bugprone-random-generator-seed)
  std::mt19937 random(20260915);
  std::size_t number = 0;
  for (int turn = 0; turn < options.warm_up + options.turns; ++turn) {
    if (options.stop.stop_requested()) throw ps::Cancelled();
    spin({.seconds = held_seconds}, stream);
    stream.record(marks[0]);
    std::ranges::shuffle(order, random);
    for (std::size_t i = 0; i < work.size(); ++i) {
      work[order[i]](number++);
      stream.record(marks[i + 1]);
    }
    stream.synchronize();
    if (turn < options.warm_up) continue;
    for (std::size_t i = 0; i < work.size(); ++i) {
      seconds[order[i]].push_back(ps::Event::seconds_between(marks[i], marks[i + 1]));
    }
  }
  std::vector<double> medians;
  for (std::vector<double>& one : seconds) medians.push_back(ps::median(std::move(one)));
  return medians;
}

}  // namespace ladder
