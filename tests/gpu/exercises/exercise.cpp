#include "gpu/exercises/exercise.h"

#include <cstdio>

namespace ps::lesson {

int verdict(int exercise, const std::string& problem) {
  if (problem.empty()) {
    std::printf("exercise %d: right\n", exercise);
    return is_right;
  }
  std::printf("exercise %d: wrong: %s\n", exercise, problem.c_str());
  return is_wrong;
}

int no_verdict(int exercise, const std::string& why) {
  std::printf("exercise %d: not checked: it needs a GPU: %s\n", exercise, why.c_str());
  return cannot_tell;
}

}  // namespace ps::lesson
