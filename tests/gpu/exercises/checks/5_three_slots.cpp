// Copies of few tiles and of many, with the loader three tiles ahead.
#include "gpu/exercises/5_three_slots.h"

#include <exception>
#include <string>

#include "gpu/exercises/exercise.h"

namespace {

using namespace ps::lesson;

std::string problem() {
  for (const unsigned tiles : {1U, 2U, 3U, 4U, 20U}) {
    RunOptions options = three_slots();
    options.tiles = tiles;
    const Outcome outcome = run(options);
    if (!outcome.right()) return std::to_string(tiles) + " tiles a block: " + describe(outcome);
  }
  return {};
}

}  // namespace

int main() {
  const std::string why_not = why_no_gpu(90);
  return why_not.empty() ? verdict_of(5, problem) : no_verdict(5, why_not);
}
