#include "ops/attention/decode.h"
#include "ops/attention/gpu.h"
#include "ops/launch.h"
#include "penstock/host/cuda.h"

namespace ps::detail {
namespace {

bool is_hopper(const Device& gpu) {
  const cuda::Properties& has = properties_of(gpu);
  return has.major == 9 && has.minor == 0;
}

void decode(const AttentionWork& work, const Stream& stream) {
  const bool is_f16 = work.type == DType::f16, appends = work.append != nullptr;
  // Tensor maps have no empty dimensions.
  const bool empty =
      work.sequences.k_rows == 0 || (work.pages.table != nullptr && work.pages.count == 0);
  if (work.kernel != AttentionKernel::decode_portable && is_hopper(stream.device()) && !empty &&
      attention_decode_fits_sm90(work)) {
    const auto run =
        appends  ? is_f16 ? attention_append_decode_sm90_f16 : attention_append_decode_sm90_bf16
        : is_f16 ? attention_decode_sm90_f16
                 : attention_decode_sm90_bf16;
    return run(work, stream.device().place(), cuda_stream(stream));
  }
  const auto run = work.type == DType::f32 ? appends ? attention_append_decode_portable_f32
                                                     : attention_decode_portable_f32
                   : appends               ? is_f16 ? attention_append_decode_portable_f16
                                                    : attention_append_decode_portable_bf16
                   : is_f16                ? attention_decode_portable_f16
                                           : attention_decode_portable_bf16;
  run(work, cuda_stream(stream));
}

}  // namespace

void attention_portable(const AttentionWork& work, cudaStream_t stream) {
  const auto run = work.type == DType::f32   ? attention_portable_f32
                   : work.type == DType::f16 ? attention_portable_f16
                                             : attention_portable_bf16;
  run(work, stream);
}

void attention_gpu(const AttentionWork& work, const Stream& stream) {
  const CurrentGpu current(stream.device());
  if (work.decodes()) return decode(work, stream);
  if (work.kernel != AttentionKernel::portable && is_hopper(stream.device()) &&
      attention_fits_sm90(work)) {
    return attention_sm90(work, stream.device().place(), cuda_stream(stream));
  }
  attention_portable(work, cuda_stream(stream));
}

}  // namespace ps::detail
