#include "ops/launch.h"
#include "ops/moe/gpu.h"
#include "penstock/host/cuda.h"

namespace ps::detail {
namespace {

// The same work, by the portable kernels where no others can do it.
MoeWork runnable(MoeWork work, const Device& gpu) {
  const cuda::Properties& properties = properties_of(gpu);
  const bool hopper = properties.major == 9 && properties.minor == 0;
  if (work.type == DType::f32 || !hopper) work.kernel = MoeKernel::portable;
  return work;
}

// The same in all steps of a call, because it depends only on what they have in common: also
// whether the columns of gate_up are contiguous, and its layout if they are.
MoePath path_of(const MoeWork& work) {
  if (work.kernel == MoeKernel::decode) return MoePath::decode;
  if (work.kernel != MoeKernel::best || work.batch_invariant || !work.decodes(work.held)) {
    return MoePath::large;
  }
  return moe_path(work.tokens, work.choices, work.experts);
}

}  // namespace

void moe_plan_gpu(const MoeWork& asked, bool and_experts, const Stream& stream) {
  const CurrentGpu current(stream.device());
  const MoeWork work = runnable(asked, stream.device());
  moe_sort(work, path_of(work), and_experts, cuda_stream(stream));
}

void moe_experts_gpu(const MoeWork& asked, bool planned, const Stream& stream) {
  const CurrentGpu current(stream.device());
  const MoeWork work = runnable(asked, stream.device());
  const MoePath path = path_of(work);
  if (!planned) moe_list(work, path, cuda_stream(stream));
  if (work.slot_count == 0) return;  // no expert is there, and there is no tensor to load from
  const auto run = [&](auto* products) {
    products(work, stream.device().place(), cuda_stream(stream));
  };
  if (work.kernel == MoeKernel::portable) return run(moe_products_portable);
  if (work.kernel == MoeKernel::sequential) return run(moe_products_sequential_sm90);
  // By counts, one of the tables is empty, and the kernels that find it so end at once.
  if (path != MoePath::decode) run(moe_products_sm90);
  if (path != MoePath::large) run(moe_products_decode_sm90);
}

void moe_combine_gpu(const MoeWork& work, const Stream& stream) {
  const CurrentGpu current(stream.device());
  moe_add_up(work, cuda_stream(stream));
}

}  // namespace ps::detail
