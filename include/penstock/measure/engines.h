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

// How a pass cuts the bytes: into chunks, which go through `slots` pieces of device memory in turn,
// as they do in a pipeline and where a cache may hold them; 0: each chunk has memory of its own.
struct Cut {
  std::size_t chunk = 0, slots = 0;
};

// All the bytes through one engine (or both link directions at once) with nothing beside it.
struct Alone {
  Floor floor;         // of all passes, at every cut
  Cut cut;             // of the best pass
  double typical = 0;  // median seconds at the best chunk, for predictions
  EngineCost cost{};   // of one chunk, fitted over the sizes tried

  double seconds() const { return floor.seconds(); }

  // Adds a pass, and keeps its cut where it is the best so far.
  void add(double seconds, const Cut& at);

  // The median is `again` seconds later on: the engine is as much faster or slower now.
  void retime(double again);
};

struct Engines {
  Alone upload, download, both_ways, compute, device_copy;
  int rounds = 1;  // of iterate(), for compute
  int cores = 0;   // that all engines share; 0 if each engine has its own hardware

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

// One more pass of each of these engines alone at its best cut, and of the link both ways where
// they use both; the floors can only fall.
void add_passes(const Yardstick& yardstick, std::span<const Engine> of, Engines& engines);

}  // namespace ps
