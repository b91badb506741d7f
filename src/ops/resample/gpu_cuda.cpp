#include <cuda_runtime_api.h>

#include "ops/launch.h"
#include "ops/resample/work.h"
#include "penstock/host/cuda.h"

namespace ps {
namespace resampling {

cudaError_t resample_f32(const detail::ResampleWork& work, int multiprocessors,
                         cudaStream_t stream);
cudaError_t resample_f64(const detail::ResampleWork& work, int multiprocessors,
                         cudaStream_t stream);
cudaError_t resample_i64(const detail::ResampleWork& work, int multiprocessors,
                         cudaStream_t stream);

}  // namespace resampling

namespace detail {

void resample_gpu(const ResampleWork& work, const Stream& stream) {
  auto* const run = work.time_type == DType::f64   ? resampling::resample_f64
                    : work.time_type == DType::i64 ? resampling::resample_i64
                                                   : resampling::resample_f32;
  launch_on(stream, "launching resample", [&] {
    return run(work, properties_of(stream.device()).multiprocessors, cuda_stream(stream));
  });
}

}  // namespace detail
}  // namespace ps
