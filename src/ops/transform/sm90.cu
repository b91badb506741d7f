// The prebuilt functions by bulk copies, for Hopper.
#include <cuda_runtime.h>

#include <optional>

#include "ops/launch.h"
#include "ops/transform/gpu.cuh"
#include "ops/transform/transform.h"
#include "penstock/host/cuda.h"
#include "penstock/ops/transform/bulk.cuh"

namespace ps::detail {

bool transform_sm90(const TransformWork& work, const Stream& stream) {
  bool suits = false;
  launch_on(stream, "launching transform", [&] {
    const std::optional<cudaError_t> launched =
        elementwise::dispatch<elementwise::GpuTypes, elementwise::Precision::half>(
            work,
            [&]<class F, class Out, class... In>(const F& function, Out* out, const In*... in) {
              using Tuning = typename elementwise::BestFor<F, Out, In...>::Bulk;
              return elementwise::launch_bulk<Tuning>(function, work.elements, cuda_stream(stream),
                                                      out, in...);
            });
    suits = launched.has_value();
    return launched.value_or(cudaSuccess);
  });
  return suits;
}

}  // namespace ps::detail
