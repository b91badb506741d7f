#include "ops/moe/work.h"
#include "penstock/base/error.h"

namespace ps::mixture {
namespace {

[[noreturn]] void refuse(const Stream& stream) {
  throw Unsupported(
      "moe on " + stream.device().name() +
      ": this build has no CUDA; build with -DPENSTOCK_CUDA=ON, or use the CPU device");
}

}  // namespace
}  // namespace ps::mixture

namespace ps::detail {

void moe_plan_gpu(const MoeWork&, bool, const Stream& stream) { mixture::refuse(stream); }
void moe_experts_gpu(const MoeWork&, bool, const Stream& stream) { mixture::refuse(stream); }
void moe_combine_gpu(const MoeWork&, const Stream& stream) { mixture::refuse(stream); }

}  // namespace ps::detail
