// What each engine needs alone, and the limits that follow for work that uses several at once.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "penstock/base/recorder.h"
#include "penstock/host/chunk.h"
#include "penstock/measure/yardstick.h"

namespace ps {

// Time of all the bytes through one engine (or both link directions at once) with nothing beside
// it, at the chunk size that suits it best.
struct Alone {
  double seconds = 0;
  std::size_t chunk = 0;
  EngineCost cost{};  // of one chunk, fitted over the sizes tried

  // The same passes took `again` seconds later on: the engine is as much faster or slower now.
  void retime(double again) {
    cost.bytes_per_second *= seconds / again;
    seconds = again;
  }
};

struct Engines {
  Alone upload, download, both_ways, compute, device_copy;
  int rounds = 1;  // of iterate
  int cores = 0;   // that all engines share; 0 where each engine has hardware of its own

  const Alone& alone(Engine engine) const;
  Alone& alone(Engine engine);

  // The largest of the engines' times alone, of both directions together where both are used, and
  // of all work over the cores where the engines share those.
  double floor_seconds(std::span<const Engine> engines) const;

  // One cost per engine for choosing a chunk: the slowest as it is beside the others, the rest as
  // they are alone, which is how they fill and drain.
  std::vector<EngineCost> costs(std::span<const Engine> engines) const;
};

// Whether these engines send bytes over the link in both directions.
bool uses_both_ways(std::span<const Engine> engines);

struct EnginesOptions {
  double compute_ratio = 1;  // rounds are chosen so that compute takes this times upload
  int rounds = 0;            // or given
  std::size_t largest = 0;   // chunk to try; 0: half the bytes
  int repeats = 5;
  double warm_up_seconds = 1;
};

// Overwrite the yardstick's output and result. The second and third are the halves of the first:
// the link stays as it is when only the arithmetic changes.
Engines measure_engines(const Yardstick& yardstick, const EnginesOptions& options = {});
void measure_link(const Yardstick& yardstick, const EnginesOptions& options, Engines& engines);
void measure_compute(const Yardstick& yardstick, const EnginesOptions& options, Engines& engines);

}  // namespace ps
