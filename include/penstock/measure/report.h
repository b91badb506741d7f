// Overlap measurements as JSON: the figures, the machine and the timelines.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "penstock/measure/file_overlap.h"
#include "penstock/measure/overlap.h"
#include "penstock/trace/page.h"

namespace ps {

// One object: {"schema", "kind", "version", "commit", "date", "device", ..., "sequential",
// "pipelined", "hidden", "efficiency", "timelines": {...}}. Times are in microseconds.
std::string as_json(const OverlapResult& result, const Device& device, bool timelines);
std::string as_json(const FileOverlapResult& result, bool timelines);

// Only timelines, with the in-kernel traces of their kernels: {"schema", "kind": "trace", ...,
// "name", "note", "timelines": {...}, "kernels": [...], "lost_records": {"<run>": count}}; the last
// two, and the note, which pages show above the timelines, only if there are any. Throws
// InvalidArgument if two runs have the same name or one is called "columns".
std::string trace_json(std::string_view title, std::span<const PageRun> runs, const Device& device,
                       std::string_view note = {});

}  // namespace ps
