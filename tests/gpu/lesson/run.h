// Runs a kernel that may be wrong on a job of random vectors, and says what became of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "gpu/lesson/job.h"
#include "gpu/lesson/stuck.h"

namespace ps::lesson {

using Kernel = void (*)(Job);

struct RunOptions {
  Kernel kernel = nullptr;
  Stuck (*take_stuck)() = nullptr;  // lesson.cuh's, of the kernel's own file
  unsigned block = threads;
  unsigned tiles = 8;
  unsigned last = threads;
  long long late = 100'000;  // some 50 microseconds
};

struct Outcome {
  std::size_t words = 0, wrong = 0;
  std::size_t first = 0;  // of the wrong ones
  std::uint32_t got = 0, expected = 0;
  Stuck stuck = Stuck::nowhere;
  std::string error{};  // of the launch; nothing was compared then

  bool right() const { return wrong == 0 && stuck == Stuck::nowhere && error.empty(); }
};

// Every run has other vectors. Throws std::runtime_error where the GPU cannot be used, but not for
// what the kernel does.
Outcome run(const RunOptions& options);

// In one line.
std::string describe(const Outcome& outcome);

// Why no GPU here has this compute capability, in tenths; empty where one has.
std::string why_no_gpu(int capability);

}  // namespace ps::lesson
