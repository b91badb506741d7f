// Times of type i64.
#include "ops/resample/portable.cuh"

namespace ps::resampling {

cudaError_t resample_i64(const detail::ResampleWork& work, int multiprocessors,
                         cudaStream_t stream) {
  return run<std::int64_t>(work, multiprocessors, stream);
}

}  // namespace ps::resampling
