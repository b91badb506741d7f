// What an overlap measurement found, as a document: the figures, the machine, and both timelines.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "penstock/measure/file_overlap.h"
#include "penstock/measure/overlap.h"
#include "penstock/trace/page.h"

namespace ps {

// One object: {"schema", "kind", "version", "commit", "date", "device", ..., "sequential",
// "pipelined", "hidden", "efficiency", "timelines": {...}}. Times in microseconds.
std::string as_json(const OverlapResult& result, const Device& device, bool timelines);
std::string as_json(const FileOverlapResult& result, bool timelines);

// Timelines alone, with what is known of the inside of their kernels: {"schema", "kind": "trace",
// ..., "name", "timelines": {...}, "kernels": [...]}. Throws InvalidArgument on
// runs of the same name, and on one called "columns".
std::string trace_json(std::string_view title, std::span<const PageRun> runs, const Device& device);

}  // namespace ps
