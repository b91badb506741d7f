#include "support/profiler.h"

#include <cuda_profiler_api.h>

#include "support/check_cuda.h"

namespace ladder {

void start_profiler() { check(cudaProfilerStart(), "cudaProfilerStart"); }
void stop_profiler() { check(cudaProfilerStop(), "cudaProfilerStop"); }

}  // namespace ladder
