// Measures each engine (copies, compute) alone, and derives floors for work that overlaps them.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "penstock/base/recorder.h"
#include "penstock/host/chunk.h"
#include "penstock/measure/floor.h"
#include "penstock/measure/yardstick.h"

namespace ps {

// How a pass divides the bytes: into chunks of `chunk` bytes, which use `slots` buffers of device
// memory in turn, as in a pipeline, so that the L2 cache may hold them. With `slots` 0, each chunk
// has its own memory.
struct Cut {
  std::size_t chunk = 0, slots = 0;
};

// Times of one engine (or of both link directions at once) while all others are idle. A pass sends
// all bytes of the yardstick through it.
struct Alone {
  Floor floor;         // the best of all passes
  Cut cut;             // of the best pass
  double typical = 0;  // median seconds at the best chunk, for predictions
  EngineCost cost{};   // of one chunk, fitted over the sizes tried

  double seconds() const { return floor.seconds(); }

  // Adds a pass. If it is the best so far, `cut` becomes `at`.
  void add(double seconds, const Cut& at);

  // Sets `typical` to a later measurement, in seconds, and scales the bandwidth of `cost` to match.
  void retime(double again);
};

struct Engines {
  Alone upload, download, both_ways, compute, device_copy;
  int rounds = 1;  // of iterate(), for compute
  int cores = 0;   // shared by all engines, on the CPU; 0 if each engine has its own hardware

  const Alone& alone(Engine engine) const;
  Alone& alone(Engine engine);

  // The floor in seconds for work that overlaps these engines: the largest of their floors, of that
  // of both directions at once if both are used, and of the total work divided by shared cores.
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

// Runs one more pass of each of these engines at its best cut, and of both link directions at once
// if they use both. Floors stay or become lower.
void add_passes(const Yardstick& yardstick, std::span<const Engine> of, Engines& engines);

}  // namespace ps
