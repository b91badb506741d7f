// Plays the ring of exercise 1 in every order that its threads could run in, with the counts that
// the exercise gives.
#include "gpu/exercises/1_arrivals.h"

#include <exception>
#include <string>

#include "gpu/exercises/exercise.h"
#include "kit/ring_model.h"

namespace {

std::string problem() {
  const ps::lesson::Arrivals given = ps::lesson::arrivals();
  if (given.commits == 0 || given.commits > 128 || given.releases == 0 || given.releases > 128) {
    return "a barrier counts some arrivals, and a block of three warps has no more than 96";
  }
  ps::test::RingCase block{.producers = 1, .consumers = 2, .pieces = 1};
  block.more_commits = static_cast<int>(given.commits) - 1;
  block.more_releases = static_cast<int>(given.releases) - 2;
  for (block.depth = 1; block.depth <= 4; ++block.depth) {
    const ps::test::Explored explored = ps::test::explore(block);
    if (explored.failures.empty()) continue;
    std::string all = "at depth " + std::to_string(block.depth) +
                      ", where the threads come in these orders (P the producer, C the consumers, "
                      "copy the bytes):";
    for (const auto& [failure, steps] : explored.failures) all += "\n  " + failure + ":" + steps;
    return all;
  }
  return {};
}

}  // namespace

int main() { return ps::lesson::verdict_of(1, problem); }
