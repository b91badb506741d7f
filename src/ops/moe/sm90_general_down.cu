// The down-projection with biases, and weights in either layout.
#include "ops/moe/sm90_launch.cuh"

namespace ps::detail {
namespace {

template <kit::Major major>
void run(const MoeWork& work, Place place, cudaStream_t stream) {
  using Kernel = MoeOverlapped;
  if (work.type == DType::f16) {
    run_down<MoeConfig<__half, Kernel::depth>, Kernel::pieces, major, false>(work, place, stream);
  } else {
    run_down<MoeConfig<__nv_bfloat16, Kernel::depth>, Kernel::pieces, major, false>(work, place,
                                                                                    stream);
  }
}

}  // namespace

void moe_general_down_sm90(const MoeWork& work, Place place, cudaStream_t stream) {
  if (down_by_column(work)) return run<kit::Major::mn>(work, place, stream);
  run<kit::Major::k>(work, place, stream);
}

}  // namespace ps::detail
