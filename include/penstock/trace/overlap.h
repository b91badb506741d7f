// How much of the work that could be hidden was hidden.
#pragma once

#include <optional>
#include <string>

namespace ps {

// All measured in one run, in seconds.
struct OverlapTimes {
  double sequential = 0;  // sum of the engines' busy times in the sequential run
  double pipelined = 0;   // wall time of the pipelined run
  double floor = 0;       // the slowest engine or shared resource alone, at its own best chunk
  double ideal = 0;       // floor plus the unavoidable fill and drain at this number of chunks
};

struct OverlapFigures {
  // (sequential - pipelined) / (sequential - floor). Never clipped. Empty when there is nothing to
  // hide: sequential and floor differ by no more than 2%, which is the clock's noise.
  std::optional<double> hidden;
  double efficiency = 0;  // floor / pipelined
  double speedup = 0;     // sequential / pipelined
  // False when hidden or efficiency is above 1.02, or the floor as much above the sequential time:
  // then something was measured wrongly, or the machine was busy with other things.
  bool valid = true;
  std::string note;  // why `hidden` is empty or the run invalid
};

// Throws InvalidArgument on times (any of the four) that are not positive and finite.
OverlapFigures overlap_figures(const OverlapTimes& times);

}  // namespace ps
