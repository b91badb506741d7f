// The expert layer as ps::moe() computes it for many tokens: while one step is multiplied, the next
// ones are loaded, and the stores of a tile complete while the next tile is multiplied.
#include "moe/support/rung.h"
#include "ops/moe/sm90_launch.cuh"

namespace {

using Kernel = ps::detail::MoeOverlapped;
using Config = ps::kit::TracedGemm<ps::detail::MoeConfig<__nv_bfloat16, Kernel::depth>>;

void run_traced(const ps::detail::MoeWork& work, ps::Place place, cudaStream_t stream,
                const ps::kit::TraceBuffer<true>& up, const ps::kit::TraceBuffer<true>& down) {
  ps::detail::run_products_of<Config, Kernel::pieces>(work, place, stream, {up, down});
}

}  // namespace

PENSTOCK_MOE_RUNG("overlapped", "Loads, matrix products and stores of different steps overlap.",
                  ps::MoeKernel::large, run_traced);
