// What an overlap measurement found, as a document: the figures, the machine, and both timelines.
#pragma once

#include <string>

#include "penstock/measure/file_overlap.h"
#include "penstock/measure/overlap.h"

namespace ps {

// One object: {"schema", "kind", "version", "commit", "date", "device", ..., "sequential",
// "pipelined", "hidden", "efficiency", "timelines": {...}}. Times in microseconds.
std::string as_json(const OverlapResult& result, const Device& device, bool timelines);
std::string as_json(const FileOverlapResult& result, bool timelines);

}  // namespace ps
