// Products leave as they came: through shared memory and a tensor map, in whole lines, the last of
// them while the next tile is multiplied already. The engine that operators are built on.
#include "gemm/support/gemm_rung.h"
#include "gemm/support/views.h"
#include "penstock/kit/gemm/launch.cuh"

namespace {

namespace kit = ps::kit;
using gemm::Problem;

using Config = kit::GemmConfig<__nv_bfloat16, 128, 256, 4, 2>;
constexpr unsigned group = 8;

template <class Any>  // Config, or the same traced
using Product = kit::Gemm<Any>;

template <class Any>
void run_with(const Problem& p, cudaStream_t stream,
              const kit::TraceBuffer<Any::traced>& buffer = {}) {
  const kit::GridOrder<Any> order(p.m, p.n, group);
  kit::launch_gemm<Product<Any>>(gemm::view_a(p), gemm::view_b(p),
                                 kit::gemm_map(gemm::view_c(p), kit::GemmStore<Any>::box_rows),
                                 order, kit::gemm_blocks<Product<Any>>(order.grid()), stream,
                                 buffer);
}

void run(const Problem& p, cudaStream_t stream) {
  const bool has_map_of_c = p.n % 8 == 0 && gemm::is_aligned(p.c, 16);
  if (!gemm::has_tensor_maps(p) || !has_map_of_c) return gemm::mma_sync(p, stream);
  run_with<Config>(p, stream);
}

gemm::Traced traced() {
  return {.name = "tensor_store",
          .roles = gemm::engine_roles(),
          .run = run_with<kit::TracedGemm<Config>>};
}

}  // namespace

const ladder::Instructions machine{.holds = {"UTMALDG.2D.MULTICAST", "UTMASTG.2D", "STSM"}};
PENSTOCK_GEMM_RUNG("tensor-store", "Results are stored through a tensor map, by TMA.", machine,
                   (kit::gemm_kernel<Product<Config>>), Config::threads,
                   sizeof(Product<Config>::Shared), run, traced);
