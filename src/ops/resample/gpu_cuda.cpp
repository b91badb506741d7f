#include <cuda_runtime_api.h>

#include "host/cuda/backend.h"
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
  auto& backend = static_cast<cuda::Backend&>(stream.device().backend());
  const cuda::Guard current(backend);
  const int multiprocessors = backend.properties().multiprocessors;
  auto* const run = work.time_type == DType::f64   ? resampling::resample_f64
                    : work.time_type == DType::i64 ? resampling::resample_i64
                                                   : resampling::resample_f32;
  backend.check(run(work, multiprocessors, cuda_stream(stream)), "launching resample");
}

}  // namespace detail
}  // namespace ps
