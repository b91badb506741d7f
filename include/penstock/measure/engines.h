// Measures each engine (copies, compute) alone, and derives floors for work that overlaps them.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "penstock/base/recorder.h"
#include "penstock/host/chunk.h"
#include "penstock/measure/yardstick.h"

namespace ps {

// The time for all bytes through one engine (or both link directions at once) with nothing else
// running, at the engine's best chunk size.
struct Alone {
  double seconds = 0;
  std::size_t chunk = 0;
  EngineCost cost{};  // of one chunk, fitted to all sizes measured

  // Replaces the time by a later measurement of the same passes, and scales the cost with it.
  void retime(double again) {
    cost.bytes_per_second *= seconds / again;
    seconds = again;
  }
};

struct Engines {
  Alone upload, download, both_ways, compute, device_copy;
  int rounds = 1;  // of iterate(), for compute
  int cores = 0;   // that all engines share; 0 if each engine has its own hardware

  const Alone& alone(Engine engine) const;
  Alone& alone(Engine engine);

  // The floor in seconds for work that overlaps these engines: the largest of their times alone, of
  // both directions at once if both are used, and of the total work divided by shared cores.
  double floor_seconds(std::span<const Engine> engines) const;

  // One cost per engine, for choose_chunk(): of the slowest engine while the others run, and of the
  // others alone, because that is how they fill and drain.
  std::vector<EngineCost> costs(std::span<const Engine> engines) const;
};

// Whether these engines use the link in both directions.
bool uses_both_ways(std::span<const Engine> engines);

struct EnginesOptions {
  double compute_ratio = 1;  // target compute time / upload time; determines the rounds
  int rounds = 0;            // if above 0, used instead of compute_ratio
  std::size_t largest = 0;   // largest chunk to measure, in bytes; 0: half of all bytes
  int repeats = 5;
  double warm_up_seconds = 1;
};

// Measure all engines, only the link, or only compute. They overwrite the yardstick's output and
// result, and block until done.
Engines measure_engines(const Yardstick& yardstick, const EnginesOptions& options = {});
void measure_link(const Yardstick& yardstick, const EnginesOptions& options, Engines& engines);
void measure_compute(const Yardstick& yardstick, const EnginesOptions& options, Engines& engines);

}  // namespace ps
