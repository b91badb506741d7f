#include "ops/moe/sm90_launch.cuh"

namespace ps::detail {
namespace {

template <class Element>
void run(const MoeWork& work, Place place, cudaStream_t stream) {
  using Kernel = MoeOverlapped;
  using Config = MoeConfig<Element, Kernel::depth>;
  if (plain_up(work)) {
    run_up<Config, Kernel::pieces, MoeEights, true>(work, place, stream);
  } else {
    moe_general_up_sm90(work, place, stream);
  }
  if (moe_narrow(work)) {
    moe_narrow_down_sm90(work, place, stream);
  } else if (plain_down(work)) {
    run_down<Config, Kernel::pieces, kit::Major::k, true>(work, place, stream);
  } else {
    moe_general_down_sm90(work, place, stream);
  }
}

}  // namespace

void moe_products_sm90(const MoeWork& work, Place place, cudaStream_t stream) {
  if (work.type == DType::f16) return run<__half>(work, place, stream);
  run<__nv_bfloat16>(work, place, stream);
}

}  // namespace ps::detail
