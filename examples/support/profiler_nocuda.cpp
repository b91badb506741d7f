#include "penstock/base/error.h"
#include "support/profiler.h"

namespace ladder {

void start_profiler() { throw ps::Unsupported("profiling a row: this build has no CUDA"); }
void stop_profiler() {}

}  // namespace ladder
