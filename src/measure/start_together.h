// Threads that start at the same moment, so that together they load the machine.
#pragma once

#include <functional>

namespace ps::detail {

// Runs work(0), ..., work(threads - 1), each on its own thread, and returns the seconds from when
// all threads were ready until the last was done. Rethrows the first exception after all have
// ended.
double run_threads_together(int threads, const std::function<void(int)>& work);

}  // namespace ps::detail
