// How a benchmark's main ends: 0, or 1 with what went wrong on standard error.
#pragma once

#include <fmt/format.h>

#include <exception>

namespace bench {

template <class Run>
int guarded(const char* name, const Run& run) {
  try {
    run();
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
    return 1;
  }
  return 0;
}

}  // namespace bench
