// Times of type f32.
#include "ops/resample/portable.cuh"

namespace ps::resampling {

cudaError_t resample_f32(const detail::ResampleWork& work, int multiprocessors,
                         cudaStream_t stream) {
  return run<float>(work, multiprocessors, stream);
}

}  // namespace ps::resampling
