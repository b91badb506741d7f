// mistakes                               names them
// mistakes --check                       runs all of them in both forms: the right ones must be
//                                        right, the wrong ones must show
// mistakes NAME wrong|right [--hurry]    runs one; in a hurry, no warp is made to come late, and
// the
//                                        wrong form may well be right
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/mistakes/mistake.h"

namespace {

using namespace ps::lesson;

constexpr int unexpected = 1, misused = 2, no_gpu = 77;

Outcome run_form(const Mistake& mistake, bool right, bool hurry) {
  RunOptions options{.kernel = right ? mistake.right : mistake.wrong,
                     .take_stuck = mistake.take_stuck,
                     .block = mistake.block,
                     .tiles = mistake.tiles,
                     .last = mistake.last};
  if (hurry) options.late = 0;
  return run(options);
}

// Whether the form did what it is said to do.
bool as_expected(const Mistake& mistake, bool right, const Outcome& outcome) {
  if (right) return outcome.right();
  if (mistake.shows == Shows::perhaps) return outcome.error.empty();
  return !outcome.right();
}

bool show(const Mistake& mistake, bool right, bool hurry) {
  const Outcome outcome = run_form(mistake, right, hurry);
  const bool nothing_expected = hurry && !right;
  const bool expected = nothing_expected || as_expected(mistake, right, outcome);
  fmt::print("{:<22} {:<6} {}{}\n", mistake.name, right ? "right" : "wrong", describe(outcome),
             expected ? "" : "   NOT AS EXPECTED");
  std::fflush(stdout);
  return expected;
}

int check_all() {
  bool good = true;
  for (const Mistake& mistake : mistakes()) {
    const std::string why_not = why_no_gpu(mistake.capability);
    if (!why_not.empty()) {
      fmt::print("{:<22} left out: {}\n", mistake.name, why_not);
      continue;
    }
    good = show(mistake, true, false) && good;
    good = show(mistake, false, false) && good;
  }
  return good ? 0 : unexpected;
}

int run_one(std::string_view name, bool right, bool hurry) {
  for (const Mistake& mistake : mistakes()) {
    if (mistake.name != name) continue;
    const std::string why_not = why_no_gpu(mistake.capability);
    if (why_not.empty()) return show(mistake, right, hurry) ? 0 : unexpected;
    fmt::print(stderr, "{} needs a GPU: {}\n", name, why_not);
    return no_gpu;
  }
  fmt::print(stderr, "there is no mistake '{}'; without arguments, their names are printed\n",
             name);
  return misused;
}

int main_of(const std::vector<std::string_view>& arguments) {
  if (arguments.empty()) {
    for (const Mistake& mistake : mistakes()) fmt::print("{}\n", mistake.name);
    return 0;
  }
  if (arguments.size() == 1 && arguments[0] == "--check") {
    const std::string why_not = why_no_gpu(80);
    if (why_not.empty()) return check_all();
    fmt::print(stderr, "the mistakes need a GPU: {}\n", why_not);
    return no_gpu;
  }
  const bool hurry = arguments.size() == 3 && arguments[2] == "--hurry";
  if (arguments.size() == 2 || hurry) {
    if (arguments[1] == "wrong") return run_one(arguments[0], false, hurry);
    if (arguments[1] == "right") return run_one(arguments[0], true, hurry);
  }
  fmt::print(stderr, "usage: mistakes [--check | NAME wrong|right [--hurry]]\n");
  return misused;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return main_of({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return unexpected;
  }
}
