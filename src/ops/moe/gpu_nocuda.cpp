#include "ops/arguments.h"
#include "ops/moe/work.h"

namespace ps::detail {

void moe_plan_gpu(const MoeWork&, bool, const Stream& stream) {
  throw_no_cuda(stream.device(), "moe");
}
void moe_experts_gpu(const MoeWork&, bool, const Stream& stream) {
  throw_no_cuda(stream.device(), "moe");
}
void moe_combine_gpu(const MoeWork&, const Stream& stream) {
  throw_no_cuda(stream.device(), "moe");
}

}  // namespace ps::detail
