// The prebuilt functions by plain vector loads, for compute capability 8.0 and later.
#include <cuda_runtime.h>

#include "ops/launch.h"
#include "ops/transform/gpu.cuh"
#include "ops/transform/transform.h"
#include "penstock/host/cuda.h"
#include "penstock/ops/transform/plain.cuh"

namespace ps::detail {

void transform_portable(const TransformWork& work, const Stream& stream) {
  launch_on(stream, "launching transform", [&] {
    return elementwise::dispatch<elementwise::GpuTypes, elementwise::Precision::half>(
        work, [&]<class F, class Out, class... In>(const F& function, Out* out, const In*... in) {
          using Tuning = typename elementwise::BestFor<F, Out, In...>::Plain;
          return elementwise::launch_plain<Tuning>(function, work.elements, cuda_stream(stream),
                                                   out, in...);
        });
  });
}

}  // namespace ps::detail
