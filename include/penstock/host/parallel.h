// Runs loops and independent tasks on all cores.
#pragma once

#include <cstddef>
#include <functional>

namespace ps {

// The most threads that parallel_ranges() uses, including the caller: the number of cores.
std::size_t parallel_threads();

// Splits [0, count) into ranges, calls work(begin, end) once for each on all cores, the caller's
// thread included, and returns when all are done. Ranges begin at multiples of `grain`, which is at
// least 1; below two grains the caller does all work alone. If `work` throws, ranges that have not
// started are skipped, and the first exception is rethrown after all threads have left `work`.
// Throws InvalidArgument for a grain of 0. Thread-safe; `work` may call it too.
void parallel_ranges(std::size_t count, std::size_t grain,
                     const std::function<void(std::size_t begin, std::size_t end)>& work);

// Schedules `work` on the pool and returns. Tasks start in the order of the calls, on all cores but
// two. `work` must not throw. Throws std::system_error if the pool's first thread cannot be
// started.
void parallel_post(std::function<void()> work);

}  // namespace ps
