// How much of the work that could be hidden was hidden.
#pragma once

#include <optional>
#include <string>

namespace ps {

// All measured in one run, in seconds.
struct OverlapTimes {
  double sequential = 0;  // sum of the engines' busy times in the sequential run
  double pipelined = 0;   // wall time of the pipelined run
  double floor = 0;       // the slowest engine or shared resource alone: its best pass
  double ideal = 0;       // floor plus the unavoidable fill and drain at this number of chunks
};

struct OverlapFigures {
  // (sequential - pipelined) / (sequential - floor). Never clipped. Empty when there is nothing to
  // hide: sequential and floor differ by no more than 2%, which is the clock's noise.
  std::optional<double> hidden;
  double efficiency = 0;  // floor / pipelined
  double speedup = 0;     // sequential / pipelined
  std::string note;       // why `hidden` is empty
};

// Arithmetic only: measure/floor.h decides whether times can be true. Throws InvalidArgument on
// times (any of the four) that are not positive and finite.
OverlapFigures overlap_figures(const OverlapTimes& times);

}  // namespace ps
