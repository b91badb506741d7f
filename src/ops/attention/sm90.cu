#include "ops/attention/sm90.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "ops/attention/gpu.h"

namespace ps::detail {

void attention_sm90(const AttentionWork& work, Place place, cudaStream_t stream) {
  // Tensor maps have no empty dimensions.
  const bool empty =
      work.sequences.max_k == 0 || (work.pages.table != nullptr && work.pages.count == 0);
  if (empty) return attention_portable(work, stream);
  const bool plain = attention_is_plain(work);
  const auto run =
      work.type == DType::f16
          ? (plain ? attention_sm90<__half, false> : attention_sm90<__half, true>)
          : (plain ? attention_sm90<__nv_bfloat16, false> : attention_sm90<__nv_bfloat16, true>);
  run(work, place, stream);
}

}  // namespace ps::detail
