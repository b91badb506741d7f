// Converts each kind of document to sections of a page.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/reading.h"
#include "penstock/trace/page.h"

namespace ps::detail {

using PageSection = std::variant<PageFacts, PageTable, PageTimelines, PagePlot, PageRoofline>;
using PageSections = std::vector<PageSection>;

// The most that a count in a document may be.
inline constexpr std::uint64_t any_count = std::uint64_t{1} << 60;

PageSections overlap_sections(const Reading& report);   // written by `penstock overlap` and `demo`
PageSections expert_sections(const Reading& report);    // written by `penstock moe`
PageSections results_sections(const Reading& results);  // written by a benchmark
PageSections ladder_sections(const Reading& ladder);
PageSections trace_sections(const Reading& trace);  // timelines only

// The runs in the field "timelines", with the kernels in "kernels" and the counts in
// "lost_records"; empty if there is no such field.
std::vector<PageRun> timeline_runs(const Reading& report);

// Parts of a report of sequential and pipelined runs: how close to the floor, and the time of each
// engine.
PageFacts overlap_facts(const Reading& report);
PageTable engine_times(const Reading& report);

// Microseconds as text: "38.75 ms".
std::string shown_us(double us);

// Plots of measured and predicted times over chunk size and depth; empty if nothing was swept.
PageSections sweep_sections(const std::vector<Reading>& points, const char* chunk_field,
                            double chosen_chunk, const std::string& title);

}  // namespace ps::detail
