// Copies of few tiles and of many.
#include "gpu/exercises/3_missing_wait.h"

#include <exception>
#include <string>

#include "gpu/exercises/exercise.h"

namespace {

using namespace ps::lesson;

std::string problem() {
  for (const unsigned tiles : {1U, 2U, 3U, 8U}) {
    RunOptions options = missing_wait();
    options.tiles = tiles;
    const Outcome outcome = run(options);
    if (!outcome.right()) return std::to_string(tiles) + " tiles a block: " + describe(outcome);
  }
  return {};
}

}  // namespace

int main() {
  const std::string why_not = why_no_gpu(80);
  return why_not.empty() ? verdict_of(3, problem) : no_verdict(3, why_not);
}
