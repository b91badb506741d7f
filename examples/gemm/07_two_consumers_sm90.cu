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
using Epilogue = gemm::PlainStore<Config>;

void run(const Problem& p, cudaStream_t stream) {
  if (!gemm::has_tensor_maps(p)) return gemm::mma_sync(p, stream);
  // One tile a block, row by row.
  const auto order = kit::gemm_order<Config>(p.m, p.n, 1);
  kit::launch_gemm<Config, Epilogue>(gemm::view_a(p), gemm::view_b(p), p, order, order.blocks(),
                                     stream);
}

}  // namespace

const ladder::Instructions machine{.holds = {"HGMMA.64x256x16", "USETMAXREG"}};
PENSTOCK_GEMM_RUNG("two-consumers", "Two consumers share a tile of 128x256, and the registers.",
                   machine, (kit::gemm_kernel<Config, Epilogue, kit::GroupedOrder>),
                   Config::threads, sizeof(kit::GemmShared<Config>), run);
