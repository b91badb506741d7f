// Times of type f64.
#include "ops/resample/portable.cuh"

namespace ps::resampling {

cudaError_t resample_f64(const detail::ResampleWork& work, int multiprocessors,
                         cudaStream_t stream) {
  return run<double>(work, multiprocessors, stream);
}

}  // namespace ps::resampling
