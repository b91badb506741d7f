// Two consumers of 64 rows each share a tile of 128x256: every byte loaded makes a third more
// products than in a tile of 128x128. 128 sums per thread leave no registers to spare, so the
// loader gives most of its own away.
#include "gemm/support/gemm_rung.h"
#include "gemm/support/plain_store.cuh"
#include "gemm/support/views.h"
#include "penstock/kit/gemm/launch.cuh"

namespace {

namespace kit = ps::kit;
using gemm::Problem;

using Config = kit::GemmConfig<__nv_bfloat16, 128, 256, 4>;

template <class Any>  // Config, or the same traced
using Product = kit::Gemm<Any, gemm::PlainStore>;

template <class Any>
void run_with(const Problem& p, cudaStream_t stream,
              const kit::TraceBuffer<Any::traced>& buffer = {}) {
  // One tile per block, row by row.
  const kit::GridOrder<Any> order(p.m, p.n, 1);
  kit::launch_gemm<Product<Any>>(gemm::view_a(p), gemm::view_b(p), p, order, order.grid().blocks(),
                                 stream, buffer);
}

void run(const Problem& p, cudaStream_t stream) {
  if (!gemm::has_tensor_maps(p)) return gemm::mma_sync(p, stream);
  run_with<Config>(p, stream);
}

gemm::Traced traced() {
  return {.name = "two_consumers",
          .roles = gemm::engine_roles(),
          .run = run_with<kit::TracedGemm<Config>>,
          .room = {.short_blocks = true}};
}

}  // namespace

const ladder::Instructions machine{.holds = {"HGMMA.64x256x16", "USETMAXREG"}};
PENSTOCK_GEMM_RUNG("two-consumers",
                   "Two consumers share a tile of 128x256; the loader gives up registers.", machine,
                   (kit::gemm_kernel<Product<Config>>), Config::threads,
                   sizeof(Product<Config>::Shared), run, traced);
