// What a ladder promises, and whether its rows keep it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "support/ladder.h"

namespace ladder {

struct Verdict {
  std::string criterion = {};    // "phase 1: at most 420 ms"
  std::optional<bool> met = {};  // unset: it was not measured
  std::string measured = {};     // "23.1 ms"; or why there is nothing
};

// Judges a ladder's results, of which rungs may be missing.
using Judge = std::vector<Verdict> (*)(const std::vector<RungRows>& results);

// Those of the ladder that the results are of; empty where it has no judge.
std::vector<Verdict> verdicts_of(const std::vector<RungRows>& results);

namespace detail {
struct JudgeRegistration {
  JudgeRegistration(std::string_view ladder, Judge judge);
};
}  // namespace detail

}  // namespace ladder
