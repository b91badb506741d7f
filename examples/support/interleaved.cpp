#include "support/interleaved.h"

#include <utility>

#include "penstock/measure/timing.h"
#include "support/spin.h"

namespace ladder {
namespace {

// Longer than enqueuing the first piece of work takes.
constexpr double held_seconds = 100e-6;

}  // namespace

std::vector<std::vector<double>> interleaved_passes(const ps::Stream& stream,
                                                    const std::vector<Enqueue>& work,
                                                    const InterleavedOptions& options) {
  return ps::interleaved_seconds(stream, work,
                                 {.turns = options.turns,
                                  .warm_up = options.warm_up,
                                  .hold = [&] { spin({.seconds = held_seconds}, stream); },
                                  .stop = options.stop});
}

std::vector<double> interleaved_medians(const ps::Stream& stream, const std::vector<Enqueue>& work,
                                        const InterleavedOptions& options) {
  std::vector<double> medians;
  for (std::vector<double>& seconds : interleaved_passes(stream, work, options)) {
    medians.push_back(ps::median(std::move(seconds)));
  }
  return medians;
}

}  // namespace ladder
