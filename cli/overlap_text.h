// An overlap measurement as text: every number with its floor beside it. Where the machine was too
// busy to measure, the text says so and has the times alone.
#pragma once

#include <string>

#include "penstock/measure/file_overlap.h"
#include "penstock/measure/overlap.h"

namespace ps::cli {

std::string overlap_text(const OverlapResult& result, const Device& device);
std::string overlap_text(const FileOverlapResult& result);

// Parts of such a text. `spread` is the largest of the engines that matter: of an engine's usual
// pass over its best one.
std::string figures_text(const OverlapTimes& times, const OverlapFigures& figures,
                         const FloorVerdict& verdict, int tries, double spread);
std::string lost_text(const Timeline& sequential, const Timeline& pipelined);

}  // namespace ps::cli
