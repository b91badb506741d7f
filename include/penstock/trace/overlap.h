// How much time overlapping saved, compared with how much it could have saved at best.
#pragma once

#include <optional>
#include <string>

namespace ps {

// All in seconds, and measured in the same run of a program.
struct OverlapTimes {
  double sequential = 0;  // sum of the engines' busy times in the sequential run
  double pipelined = 0;   // wall time of the pipelined run
  double floor = 0;       // best pass of the slowest engine or shared link, measured alone
  double ideal = 0;       // the floor plus filling and draining the pipeline at this chunk size
};

struct OverlapFigures {
  // (sequential - pipelined) / (sequential - floor): 1 if all time that can be hidden was hidden.
  // Not clipped. Empty if there is nothing to hide: the sequential time and the floor differ by at
  // most 2 %, which is within measurement noise.
  std::optional<double> hidden;
  double efficiency = 0;  // floor / pipelined
  double speedup = 0;     // sequential / pipelined
  std::string note;       // why `hidden` is empty
};

// Computes the figures; measure/floor.h decides whether the times can be right. Throws
// InvalidArgument if one of the four times is not positive and finite.
OverlapFigures overlap_figures(const OverlapTimes& times);

}  // namespace ps
