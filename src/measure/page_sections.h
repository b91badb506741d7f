// The kinds of documents that a page can show, each as sections of it.
#pragma once

#include <string>
#include <vector>

#include "base/reading.h"
#include "penstock/trace/page.h"

namespace ps::detail {

using PageSection = std::variant<PageFacts, PageTable, PageTimelines, PagePlot, PageRoofline>;
using PageSections = std::vector<PageSection>;

PageSections overlap_sections(const Reading& report);   // of `penstock overlap` and `demo`
PageSections results_sections(const Reading& results);  // of a benchmark
PageSections ladder_sections(const Reading& ladder);
PageSections trace_sections(const Reading& trace);  // timelines alone

// The runs under "timelines", with what "kernels" says of kernels in them; none where there is no
// such field.
std::vector<PageRun> timeline_runs(const Reading& report);

// "38.75 ms" from microseconds.
std::string shown_us(double us);

// Times over chunk sizes (and depths) beside what was predicted; none where nothing was swept.
PageSections sweep_sections(const std::vector<Reading>& points, const char* chunk_field,
                            double chosen_chunk, const std::string& title);

}  // namespace ps::detail
