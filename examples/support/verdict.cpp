#include "support/verdict.h"

#include <map>

namespace ladder {
namespace {

// Inside a function, so that it exists before the first file registers.
std::map<std::string_view, Judge>& judges() {
  static std::map<std::string_view, Judge> all;
  return all;
}

}  // namespace

detail::JudgeRegistration::JudgeRegistration(std::string_view ladder, Judge judge) {
  judges().emplace(ladder, judge);
}

std::vector<Verdict> verdicts_of(const std::vector<RungRows>& results) {
  if (results.empty()) return {};
  const auto found = judges().find(results.front().rung.ladder);
  return found == judges().end() ? std::vector<Verdict>() : found->second(results);
}

}  // namespace ladder
