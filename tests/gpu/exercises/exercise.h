// What the exercises share: how a checker says what it found, and what each exercise defines. The
// files are those of docs/tutorial/exercises.md.
#pragma once

#include <exception>
#include <string>

namespace ps::lesson {

constexpr int is_right = 0, is_wrong = 1, cannot_tell = 77;

// Prints the verdict, and returns it as an exit code. No problem is a right answer.
int verdict(int exercise, const std::string& problem);

// Prints why the exercise cannot be checked here, and returns that.
int no_verdict(int exercise, const std::string& why);

// Runs `check`, which returns a problem or nothing; what it throws is a problem too.
template <class Check>
int verdict_of(int exercise, const Check& check) {
  try {
    return verdict(exercise, check());
  } catch (const std::exception& error) {
    return verdict(exercise, error.what());
  }
}

}  // namespace ps::lesson
