#include <cuda_runtime_api.h>

#include <optional>

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

// On Hopper alone. Nothing where the rows do not suit.
std::optional<cudaError_t> resample_ring(const detail::ResampleWork& work, int multiprocessors,
                                         cudaStream_t stream);

}  // namespace resampling

namespace detail {

void resample_gpu(const ResampleWork& work, const Stream& stream) {
  auto& backend = static_cast<cuda::Backend&>(stream.device().backend());
  const cuda::Guard current(backend);
  const int multiprocessors = backend.properties().multiprocessors;
  const auto check = [&](cudaError_t status) { backend.check(status, "launching resample"); };
  if (work.kernel == ResampleKernel::ring) {
    if (const auto launched =
            resampling::resample_ring(work, multiprocessors, cuda_stream(stream))) {
      return check(*launched);
    }
  }
  auto* const run = work.time_type == DType::f64   ? resampling::resample_f64
                    : work.time_type == DType::i64 ? resampling::resample_i64
                                                   : resampling::resample_f32;
  check(run(work, multiprocessors, cuda_stream(stream)));
}

}  // namespace detail
}  // namespace ps
