#include "ops/arguments.h"
#include "ops/attention/work.h"

namespace ps::detail {

void attention_gpu(const AttentionWork&, const Stream& stream) {
  throw_no_cuda(stream.device(), "attention");
}

}  // namespace ps::detail
