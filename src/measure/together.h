// Several threads that start at once.
#pragma once

#include <functional>

namespace ps::detail {

// Runs work(0), ..., work(threads - 1) on a thread each and returns the seconds from the moment all
// were ready to the moment the last was done. Rethrows the first exception, after all have ended.
double seconds_together(int threads, const std::function<void(int)>& work);

}  // namespace ps::detail
