// An overlap measurement as a person reads it: every number with its limit beside it.
#pragma once

#include <string>

#include "penstock/measure/file_overlap.h"
#include "penstock/measure/overlap.h"

namespace ps::cli {

std::string overlap_text(const OverlapResult& result, const Device& device);
std::string overlap_text(const FileOverlapResult& result);

}  // namespace ps::cli
