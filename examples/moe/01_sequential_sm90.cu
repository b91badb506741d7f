// The expert layer without overlap: one slot in the ring, so that a load waits until the slot's
// product is done, and stores that are waited for.
#include "moe/support/rung.h"
#include "ops/moe/sm90_launch.cuh"

namespace {

using Kernel = ps::detail::MoeSequential;
using Config = ps::kit::TracedGemm<ps::detail::MoeConfig<__nv_bfloat16, Kernel::depth>>;

void run_traced(const ps::detail::MoeWork& work, ps::Place place, cudaStream_t stream,
                const ps::kit::TraceBuffer<true>& up, const ps::kit::TraceBuffer<true>& down) {
  ps::detail::run_products_of<Config, Kernel::pieces>(work, place, stream, {up, down});
}

}  // namespace

PENSTOCK_MOE_RUNG("sequential", "Loads, matrix products and stores run one after the other.",
                  ps::MoeKernel::sequential, run_traced);
