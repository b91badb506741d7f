// Runs the rungs and shows what they measured.
#pragma once

#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "support/context.h"
#include "support/rung.h"

namespace ladder {

struct RungRows {
  Rung rung;
  std::vector<Row> rows;
};

// The rungs of this program, or the one called `only`; throws InvalidArgument listing the names
// when there is none.
std::vector<Rung> select_rungs(const std::string& only);

// Runs each and fills in the speed-ups. `starting` is told each rung before it runs.
std::vector<RungRows> climb(Context& context, const std::vector<Rung>& rungs,
                            const std::function<void(const Rung&)>& starting);

void print_table(std::ostream& out, Context& context, const std::vector<RungRows>& results);
void print_json(std::ostream& out, Context& context, const std::vector<RungRows>& results);

}  // namespace ladder
