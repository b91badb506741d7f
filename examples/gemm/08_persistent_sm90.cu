// One block per multiprocessor takes tile after tile: the loader brings the next tile's first
// slots while the last one's sums are stored. The tiles come in panels of a few rows, so that
// blocks that run together share their operands in the L2 cache.
#include "gemm/support/gemm_rung.h"
#include "gemm/support/plain_store.cuh"
#include "gemm/support/views.h"
#include "penstock/kit/gemm/launch.cuh"

namespace {

namespace kit = ps::kit;
using gemm::Problem;

using Config = kit::GemmConfig<__nv_bfloat16, 128, 256, 4>;
constexpr unsigned group = 8;

template <class Any>  // Config, or the same traced
using Product = kit::Gemm<Any, gemm::PlainStore>;

template <class Any>
void run_with(const Problem& p, cudaStream_t stream,
              const kit::TraceBuffer<Any::traced>& buffer = {}) {
  const kit::GridOrder<Any> order(p.m, p.n, group);
  kit::launch_gemm<Product<Any>>(gemm::view_a(p), gemm::view_b(p), p, order,
                                 kit::gemm_blocks<Product<Any>>(order.grid()), stream, buffer);
}

void run(const Problem& p, cudaStream_t stream) {
  if (!gemm::has_tensor_maps(p)) return gemm::mma_sync(p, stream);
  run_with<Config>(p, stream);
}

gemm::Traced traced() {
  return {.name = "persistent",
          .roles = gemm::engine_roles(),
          .run = run_with<kit::TracedGemm<Config>>};
}

}  // namespace

const ladder::Instructions machine{.holds = {"HGMMA.64x256x16", "UTMALDG.2D"}};
PENSTOCK_GEMM_RUNG("persistent",
                   "One persistent block per SM takes tiles in an order that suits the L2 cache.",
                   machine, (kit::gemm_kernel<Product<Config>>), Config::threads,
                   sizeof(Product<Config>::Shared), run, traced);
