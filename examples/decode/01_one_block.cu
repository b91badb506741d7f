// One block of threads per sequence and head of k reads all its keys and values once. The query
// heads that share them are the rows of one mma.sync of 16 rows: tensor cores multiply each key
// with all of them.
#include "decode/support/launch.cuh"

namespace {

using namespace ladder::decode;

__global__ void __launch_bounds__(threads, 2) one_block(const __grid_constant__ Problem p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<Shared*>(memory);
  const unsigned head = blockIdx.x, sequence = blockIdx.y;
  const Run all{.sequence = sequence, .head = head, .end = blocks_of(p.lengths[sequence])};
  attend<ContiguousRows>(shared, p, all,
                         [&](unsigned row, unsigned column, float sum, const Stats& stats) {
                           const unsigned head_q = head * p.group() + row;
                           store_result(p, sequence, head_q, column, sum, stats);
                         });
}

void run(const Problem& p, const ps::Stream& stream) {
  kit::launch(one_block, launch_options(dim3(p.heads_k, p.sequences)), ps::cuda_stream(stream), p);
}

std::vector<Variant> variants() {
  return {{.label = "bf16", .run = run, .use = use_of<one_block>}};
}

const ladder::Instructions machine{.holds = {"HMMA.16816", "LDSM.MT88", "LDGSTS.128"}};
PENSTOCK_DECODE_RUNG("one-block",
                     "One block per key head; the query heads are the rows of mma.sync.", machine,
                     variants);

}  // namespace
