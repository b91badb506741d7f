// The prebuilt functions by bulk copies through a ring in shared memory, for Hopper.
#include <cuda_runtime.h>

#include "host/cuda/backend.h"
#include "ops/transform/gpu.cuh"
#include "ops/transform/transform.h"
#include "penstock/host/cuda.h"
#include "penstock/ops/transform/ring.cuh"

namespace ps::detail {

bool transform_sm90(const TransformWork& work, const Stream& stream) {
  auto& backend = static_cast<cuda::Backend&>(stream.device().backend());
  const int multiprocessors = backend.properties().multiprocessors;
  const cuda::Guard current(backend);
  const std::optional<cudaError_t> launched =
      elementwise::dispatch<elementwise::GpuTypes, elementwise::Precision::half>(
          work, [&]<class F, class Out, class... In>(const F& function, Out* out, const In*... in) {
            using Tuning = typename elementwise::BestFor<Out, In...>::Ring;
            return elementwise::launch_ring<Tuning>(function, work.elements, multiprocessors,
                                                    cuda_stream(stream), out, in...);
          });
  if (launched) backend.check(*launched, "launching transform");
  return launched.has_value();
}

bool sm90_is_best(const TransformWork& work) {
  return elementwise::dispatch<elementwise::GpuTypes, elementwise::Precision::half>(
      work, []<class F, class Out, class... In>(const F&, Out*, const In*...) {
        return elementwise::BestFor<Out, In...>::ring;
      });
}

}  // namespace ps::detail
