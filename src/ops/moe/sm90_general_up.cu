// The up-projection with biases, any activation, and weights in any layout.
#include "ops/moe/sm90_launch.cuh"

namespace ps::detail {
namespace {

template <class Columns>
void run(const MoeWork& work, Place place, cudaStream_t stream) {
  using Kernel = MoeOverlapped;
  if (work.type == DType::f16) {
    run_up<MoeConfig<__half, Kernel::depth>, Kernel::pieces, Columns, false>(work, place, stream);
  } else {
    run_up<MoeConfig<__nv_bfloat16, Kernel::depth>, Kernel::pieces, Columns, false>(work, place,
                                                                                    stream);
  }
}

}  // namespace

void moe_general_up_sm90(const MoeWork& work, Place place, cudaStream_t stream) {
  if (!gate_up_by_column(work)) return run<MoeEights>(work, place, stream);
  if (work.layout == GateUpLayout::interleaved) return run<MoePairs>(work, place, stream);
  run<MoePanels>(work, place, stream);
}

}  // namespace ps::detail
