// Two blocks, one above the other, need the same columns of B: each loads half of them for both.
// A third of the traffic between the L2 cache and shared memory is gone.
#include "gemm/support/gemm_rung.h"
#include "gemm/support/plain_store.cuh"
#include "gemm/support/views.h"
#include "penstock/kit/gemm/launch.cuh"

namespace {

namespace kit = ps::kit;
using gemm::Problem;

using Config = kit::GemmConfig<__nv_bfloat16, 128, 256, 4, 2>;
using Epilogue = gemm::PlainStore<Config>;
constexpr unsigned group = 8;

void run(const Problem& p, cudaStream_t stream) {
  if (!gemm::has_tensor_maps(p)) return gemm::mma_sync(p, stream);
  const auto order = kit::gemm_order<Config>(p.m, p.n, group);
  kit::launch_gemm<Config, Epilogue>(gemm::view_a(p), gemm::view_b(p), p, order,
                                     kit::gemm_blocks<Config, Epilogue>(order), stream);
}

}  // namespace

const ladder::Instructions machine{.holds = {"UTMALDG.2D.MULTICAST"}};
PENSTOCK_GEMM_RUNG("cluster", "Two blocks share what they load of B.", machine,
                   (kit::gemm_kernel<Config, Epilogue, kit::GroupedOrder>), Config::threads,
                   sizeof(kit::GemmShared<Config>), run);
