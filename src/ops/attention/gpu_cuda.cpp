#include "ops/attention/gpu.h"
#include "ops/launch.h"
#include "penstock/host/cuda.h"

namespace ps::detail {
namespace {

bool runs_sm90(const AttentionWork& work, const Device& gpu) {
  if (work.kernel == AttentionKernel::portable) return false;
  const cuda::Properties& has = properties_of(gpu);
  return has.major == 9 && has.minor == 0 && attention_fits_sm90(work);
}

}  // namespace

void attention_portable(const AttentionWork& work, cudaStream_t stream) {
  const auto run = work.type == DType::f32   ? attention_portable_f32
                   : work.type == DType::f16 ? attention_portable_f16
                                             : attention_portable_bf16;
  run(work, stream);
}

void attention_gpu(const AttentionWork& work, const Stream& stream) {
  const cuda::Guard current(backend_of(stream.device()));
  if (runs_sm90(work, stream.device())) {
    return attention_sm90(work, stream.device().place(), cuda_stream(stream));
  }
  attention_portable(work, cuda_stream(stream));
}

}  // namespace ps::detail
