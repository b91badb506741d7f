// Hardware counters of a row's kernels, by NVIDIA's profiler ncu: for every row the program starts
// itself once more under ncu, runs that row's rung and has its kernels profiled.
#pragma once

#include <cstddef>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "support/rung.h"

namespace ladder {

struct RungRows;

// How this program is started for the rows of a rung, without the program itself: the words of
// `penstock ladder NAME --only RUNG --profile-row ROW`, and what the user gave besides.
using ProfileWords = std::function<std::vector<std::string>(const Rung& rung, std::size_t row)>;

// The command that profiles a run of the program.
std::vector<std::string> ncu_command(const std::string& ncu, const std::string& program,
                                     const std::vector<std::string>& words);

// Reads what `ncu --csv --page raw --print-units base` printed: a row of names, one of units, then
// one per launch. Messages may surround it. Throws std::runtime_error that says what is wrong.
Counters parse_counters(std::string_view printed);

// Fills in the counters of all rows that have a number. `starting` is called with each rung and the
// share of the rows that are done. Throws ps::Unsupported if there is no ncu on the path, or if it
// may not read the counters, ps::Cancelled if `stop` says so, and what parse_counters() throws.
void measure_counters(std::vector<RungRows>& results, const ProfileWords& words,
                      const std::function<void(const Rung&, double fraction)>& starting,
                      const std::stop_token& stop);

}  // namespace ladder
