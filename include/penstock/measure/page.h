// Shows measurements as an HTML page.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "penstock/trace/page.h"

namespace ps {

// An empty page with the version of this build.
Page make_page(std::string_view title);

// Adds a document to the page: a report of `penstock overlap`, `moe` or `demo`, the results of a
// benchmark, or the table of a ladder. `source` names it in errors and titles. Throws
// InvalidArgument naming the field that is wrong; the page is then unchanged.
void add_document(Page& page, std::string_view json, std::string_view source);

// The timelines in a document. Throws as add_document() does.
std::vector<PageRun> timelines_in(std::string_view json, std::string_view source);

// A report of `penstock moe` with a trace of kernels, which its page then also shows: one that
// `penstock ladder moe --trace` writes, and `source` names. Throws as add_document().
std::string with_kernel_trace(std::string_view report, std::string_view trace,
                              std::string_view source);

}  // namespace ps
