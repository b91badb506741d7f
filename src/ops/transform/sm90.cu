// The prebuilt functions by bulk copies, for Hopper.
#include <cuda_runtime.h>

#include "host/cuda/backend.h"
#include "ops/transform/gpu.cuh"
#include "ops/transform/transform.h"
#include "penstock/host/cuda.h"
#include "penstock/ops/transform/bulk.cuh"

namespace ps::detail {

bool transform_sm90(const TransformWork& work, const Stream& stream) {
  auto& backend = static_cast<cuda::Backend&>(stream.device().backend());
  const cuda::Guard current(backend);
  const std::optional<cudaError_t> launched =
      elementwise::dispatch<elementwise::GpuTypes, elementwise::Precision::half>(
          work, [&]<class F, class Out, class... In>(const F& function, Out* out, const In*... in) {
            using Tuning = typename elementwise::BestFor<F, Out, In...>::Bulk;
            return elementwise::launch_bulk<Tuning>(function, work.elements, cuda_stream(stream),
                                                    out, in...);
          });
  if (launched) backend.check(*launched, "launching transform");
  return launched.has_value();
}

}  // namespace ps::detail
