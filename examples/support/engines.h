// What each engine needs alone, and the limits that follow for work that uses several at once.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <stop_token>

#include "penstock/base/recorder.h"
#include "penstock/host/chunk.h"
#include "penstock/host/device.h"
#include "support/data.h"

namespace ladder {

// Time of all the bytes through one engine (or both link directions at once) with nothing beside
// it, at the chunk size that suits it best.
struct Alone {
  double seconds = 0;
  std::size_t chunk = 0;
  ps::EngineCost cost;
};

struct Engines {
  Alone upload, download, both_ways, compute, device_copy;
  int rounds = 1;         // of iterate, so that compute takes as long as upload
  std::size_t chunk = 0;  // that a pipeline over these should cut the bytes into
  std::size_t chunks = 0;
  int cores = 0;  // that all engines share; 0 where each engine has hardware of its own

  // Busy time of each ps::Engine in a run that does one thing at a time, in chunks of `chunk`.
  std::array<double, 6> busy{};

  double sequential_seconds(std::span<const ps::Engine> engines) const;
  double floor_seconds(std::span<const ps::Engine> engines) const;
  // The floor, plus one chunk through every engine but the slowest: filling and draining.
  double ideal_seconds(std::span<const ps::Engine> engines) const;

 private:
  const Alone& alone(ps::Engine engine) const;
};

// Measures on the buffers of `data`, whose output and result it overwrites. Zero for `chunk` lets
// the measured costs choose. Throws ps::Cancelled when asked to stop.
Engines measure_engines(const ps::Device& device, const Data& data, std::size_t chunk,
                        const std::stop_token& stop);

}  // namespace ladder
