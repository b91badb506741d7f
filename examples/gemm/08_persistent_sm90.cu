// One block per multiprocessor takes tile after tile: the loader brings the next tile's first
// stages while the last one's sums are stored. The tiles come in panels of a few rows, so that
// blocks that run together share their operands in the L2 cache.
#include "gemm/support/gemm_rung.h"
#include "gemm/support/plain_store.cuh"
#include "gemm/support/views.h"
#include "penstock/kit/gemm/launch.cuh"

namespace {

namespace kit = ps::kit;
using gemm::Problem;

using Config = kit::GemmConfig<__nv_bfloat16, 128, 256, 4>;
using Epilogue = gemm::PlainStore<Config>;
constexpr unsigned group = 8;

void run(const Problem& p, cudaStream_t stream) {
  if (!gemm::has_tensor_maps(p)) return gemm::mma_sync(p, stream);
  const auto order = kit::gemm_order<Config>(p.m, p.n, group);
  kit::launch_gemm<Config, Epilogue>(gemm::view_a(p), gemm::view_b(p), p, order,
                                     kit::gemm_blocks<Config, Epilogue>(order), stream);
}

}  // namespace

const ladder::Instructions machine{.holds = {"HGMMA.64x256x16", "UTMALDG.2D"}};
PENSTOCK_GEMM_RUNG("persistent", "A block per multiprocessor, tiles in an order for the L2 cache.",
                   machine, (kit::gemm_kernel<Config, Epilogue, kit::GroupedOrder>),
                   Config::threads, sizeof(kit::GemmShared<Config>), run);
