// Sums that are right, of many numbers and of few.
#include "gpu/exercises/2_deadlock.h"

#include <cstddef>
#include <exception>
#include <string>
#include <vector>

#include "gpu/exercises/exercise.h"

namespace {

std::string problem() {
  for (const std::size_t count : {2U, 3U, 4U, 5U, 1000U}) {
    std::vector<int> numbers(count);
    for (std::size_t i = 0; i < count; ++i) numbers[i] = static_cast<int>(i * i % 1009);
    const std::string of = "of " + std::to_string(count) + " numbers: ";
    try {
      const std::vector<int> sums = ps::lesson::sums(numbers);
      if (sums.size() + 1 != count)
        return of + "there are " + std::to_string(sums.size()) + " sums";
      for (std::size_t i = 0; i + 1 < count; ++i) {
        if (sums[i] == numbers[i] + numbers[i + 1]) continue;
        return of + "sum " + std::to_string(i) + " is " + std::to_string(sums[i]) + " instead of " +
               std::to_string(numbers[i] + numbers[i + 1]);
      }
    } catch (const std::exception& error) {
      return of + error.what();
    }
  }
  return {};
}

}  // namespace

int main() { return ps::lesson::verdict_of(2, problem); }
