// The mistakes of docs/tutorial/what-goes-wrong.md: each a kernel in a wrong and in a right form.
#pragma once

#include <string>
#include <vector>

#include "gpu/lesson/run.h"

namespace ps::lesson {

// What the wrong form does.
enum class Shows : unsigned char {
  always,        // its result is wrong, or a wait never ends, on every run
  loses_device,  // its launch fails, and the process has no GPU from then on
  perhaps,       // it may well be right: nothing can be said of one run
};

struct Mistake {
  const char* name;
  Kernel wrong, right;
  Stuck (*take_stuck)();  // lesson.cuh's, of the file
  int capability = 80;    // in tenths
  Shows shows = Shows::always;
  unsigned block = threads;
  unsigned tiles = 8;
  unsigned last = threads;
};

// In the order of their names. What loses the device comes last.
std::vector<Mistake> mistakes();

// Returns true, so that a file can add its mistake before main() begins.
bool add(const Mistake& mistake);

}  // namespace ps::lesson
