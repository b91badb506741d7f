// Writes runs as a trace file that Perfetto and Chrome's tracing view open.
#pragma once

#include <span>
#include <string>

#include "penstock/trace/page.h"

namespace ps {

// Returns the trace as JSON. Each run is a process. Each stage of an engine is a thread whose
// slices are the intervals, with the item as an argument; each role of a traced kernel's block is a
// thread too, with the tile as an argument. Perfetto drops slices of one thread that overlap in
// part, so overlapping slices are spread over several threads: "disk: read", "disk: read, row 2",
// ...
std::string perfetto_json(std::span<const PageRun> runs);

}  // namespace ps
