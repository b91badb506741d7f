// Documents that measurements wrote, as a page for people.
#pragma once

#include <string_view>
#include <vector>

#include "penstock/trace/page.h"

namespace ps {

// A page without sections, stamped with this build.
Page make_page(std::string_view title);

// Adds what a document says: a report of `penstock overlap` or `demo`, a benchmark's results, a
// ladder's table. `source` names it in errors and titles. Throws InvalidArgument naming the place
// in the document that is not as expected; the page is then as it was.
void add_document(Page& page, std::string_view json, std::string_view source);

// The timelines that a document holds; none where it has none. Throws as above.
std::vector<PageRun> timelines_in(std::string_view json, std::string_view source);

}  // namespace ps
