// Runs the rungs and shows what they measured.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "support/context.h"
#include "support/rung.h"

namespace ladder {

struct RungRows {
  Rung rung;
  std::vector<Row> rows;
};

// Runs each and fills in the speed-ups. `starting` is called with each rung and the share of the
// ladder that is below it. Throws ps::Unsupported where rungs about kernels meet no GPU.
std::vector<RungRows> climb(Context& context, const std::vector<Rung>& rungs,
                            const std::function<void(const Rung&, double fraction)>& starting);

// For people, and as one JSON object. Both end in a newline.
std::string as_table(Context& context, const std::vector<RungRows>& results);
std::string as_json(Context& context, const std::vector<RungRows>& results);

// The rungs themselves, without running them.
std::string list_as_text(const std::vector<Rung>& rungs);
std::string list_as_json(const std::vector<Rung>& rungs);

}  // namespace ladder
