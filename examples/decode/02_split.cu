// The keys of every sequence are divided among a fixed number of blocks of threads, so that few
// sequences still occupy the whole GPU. Each block writes a partial result; a second kernel
// combines those of a row in the order of the keys.
#include "decode/support/launch.cuh"

namespace {

using namespace ladder::decode;

// Partial results of a row follow each other. A split of a short sequence may have no blocks of
// keys.
template <unsigned splits>
__global__ void __launch_bounds__(threads, 2) compute_split(const __grid_constant__ Problem p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<Shared*>(memory);
  const unsigned split = blockIdx.x, head = blockIdx.y, sequence = blockIdx.z;
  const unsigned blocks = blocks_of(p.lengths[sequence]);
  const Run run{.sequence = sequence,
                .head = head,
                .begin = cut(blocks, splits, split),
                .end = cut(blocks, splits, split + 1)};
  attend<ContiguousRows>(
      shared, p, run, [&](unsigned row, unsigned column, float sum, const Stats& stats) {
        const std::size_t result = std::size_t{sequence} * p.heads_q + head * p.group() + row;
        store_partial(p, result * splits + split, column, sum, stats);
      });
}

// One block per query head and sequence.
template <unsigned splits>
__global__ void __launch_bounds__(threads) combine_splits(const __grid_constant__ Problem p) {
  const unsigned head_q = blockIdx.x, sequence = blockIdx.y;
  combine(p, sequence, head_q, splits, [&](unsigned split) {
    return (std::size_t{sequence} * p.heads_q + head_q) * splits + split;
  });
}

template <unsigned splits>
void run(const Problem& p, const ps::Stream& stream) {
  static_assert(splits <= most_splits);
  kit::launch(compute_split<splits>, launch_options(dim3(splits, p.heads_k, p.sequences)),
              ps::cuda_stream(stream), p);
  kit::launch(combine_splits<splits>, {.grid = dim3(p.heads_q, p.sequences), .block = threads},
              ps::cuda_stream(stream), p);
}

template <unsigned splits>
Variant variant() {
  return {.label = std::to_string(splits) + " splits",
          .run = run<splits>,
          .use = use_of<compute_split<splits>>};
}

std::vector<Variant> variants() { return {variant<2>(), variant<8>(), variant<32>()}; }

const ladder::Instructions machine{.holds = {"HMMA.16816", "LDGSTS.128", "MUFU.EX2"}};
PENSTOCK_DECODE_RUNG("split",
                     "Several blocks share the keys of a sequence; a second kernel combines.",
                     machine, variants);

}  // namespace
