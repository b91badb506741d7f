#include "ops/launch.h"
#include "ops/moe/gpu.h"
#include "penstock/host/cuda.h"

namespace ps::detail {
namespace {

// Whether the kernels for compute capability 9.0 may run. If the call names one of them, moe() has
// checked that they do.
bool on_hopper(const MoeWork& work, const Device& gpu) {
  if (work.kernel == MoeKernel::portable || work.type == DType::f32) return false;
  const cuda::Properties& properties = properties_of(gpu);
  return properties.major == 9 && properties.minor == 0;
}

// The same in all steps of a call: it depends on nothing that may change between them.
MoePath path_of(const MoeWork& work, const Device& gpu) {
  if (work.kernel == MoeKernel::decode) return MoePath::decode;
  if (work.kernel != MoeKernel::best || work.batch_invariant || !on_hopper(work, gpu)) {
    return MoePath::large;
  }
  return moe_path(work.tokens, work.choices, work.experts);
}

}  // namespace

void moe_plan_gpu(const MoeWork& work, bool and_experts, const Stream& stream) {
  const cuda::Guard current(backend_of(stream.device()));
  moe_sort(work, path_of(work, stream.device()), and_experts, cuda_stream(stream));
}

void moe_experts_gpu(const MoeWork& work, bool planned, const Stream& stream) {
  const Device& gpu = stream.device();
  const cuda::Guard current(backend_of(gpu));
  const MoePath path = path_of(work, gpu);
  if (!planned) moe_list(work, path, cuda_stream(stream));
  if (work.slot_count == 0) return;  // no expert is there, and there is no tensor to load from
  const auto run = [&](const auto& products) { products(work, gpu.place(), cuda_stream(stream)); };
  if (!on_hopper(work, gpu)) return run(moe_products_portable);
  if (work.kernel == MoeKernel::sequential) return run(moe_products_sequential_sm90);
  // By counts, one of the tables is empty, and the kernels that find it so end at once.
  if (path != MoePath::decode) run(moe_products_sm90);
  if (path != MoePath::large) run(moe_products_decode_sm90);
}

void moe_combine_gpu(const MoeWork& work, const Stream& stream) {
  const cuda::Guard current(backend_of(stream.device()));
  moe_add_up(work, cuda_stream(stream));
}

}  // namespace ps::detail
