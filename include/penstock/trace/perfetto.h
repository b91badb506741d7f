// Runs as a trace file that Perfetto (and Chrome's tracing view) opens.
#pragma once

#include <span>
#include <string>

#include "penstock/trace/page.h"

namespace ps {

// A process a run; a thread an engine's stage, a slice an interval with its item; a thread a role
// of a traced kernel's block, a slice a span with its tile.
std::string perfetto_json(std::span<const PageRun> runs);

}  // namespace ps
