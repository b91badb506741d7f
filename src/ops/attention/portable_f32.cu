// The portable attention of f32: a block computes 16 queries of one head, a warp 4 of them.
#include "ops/attention/portable_f32.cuh"

#include <cstdint>

#include "ops/attention/portable.cuh"

namespace ps::detail {
namespace {

using namespace attention_f32;
using portable_attention::Call;

__global__ void __launch_bounds__(threads, 2)
    attention_f32_kernel(const __grid_constant__ Call call, Scoring score_of) {
  extern __shared__ __align__(16) unsigned char memory[];
  auto& shared = *reinterpret_cast<Tiles*>(memory);
  const std::uint32_t batch = call.first_batch + blockIdx.z, head = blockIdx.y;
  const AttentionSequence sequence = call.sequences(static_cast<std::int32_t>(batch));
  const auto first = static_cast<std::int32_t>((gridDim.x - 1 - blockIdx.x) * rows);
  if (first >= sequence.q_length) return;
  const std::int32_t last = min(first + static_cast<std::int32_t>(rows), sequence.q_length);
  const AttentionBlocks blocks =
      attention_blocks(first, last, sequence.q_length, sequence.k_length, call.reach, keys);
  const AttentionPages in_no_pages{};
  load(shared.q, rows,
       {call.q, in_no_pages, call.q_strides, batch, head, sequence.q_begin, sequence.q_length},
       first, call.dim);

  const std::uint32_t head_k = head / call.group;
  const unsigned lane = kit::lane_index(), warp_row = kit::warp_index() * warp_rows;
  Row all[warp_rows];
  for (std::int32_t block = blocks.begin; block < blocks.end; ++block) {
    const std::int32_t begin = block * static_cast<std::int32_t>(keys);
    __syncthreads();  // nobody reads the last block
    load(shared.k, keys,
         {call.k, call.pages, call.k_strides, batch, head_k, sequence.k_begin, sequence.k_length},
         begin, call.dim);
    load(shared.v, keys,
         {call.v, call.pages, call.v_strides, batch, head_k, sequence.k_begin, sequence.k_length},
         begin, call.dim_v);
    __syncthreads();
#pragma unroll
    for (unsigned r = 0; r < warp_rows; ++r) {
      const std::int32_t query = first + static_cast<std::int32_t>(warp_row + r);
      const std::int32_t key = begin + static_cast<std::int32_t>(lane);
      const AttentionKeys own =
          attention_keys(query, sequence.q_length, sequence.k_length, call.reach);
      float score = score_of(dot(shared.q[warp_row + r], shared.k[lane], call.dim));
      if (key < own.begin || key >= own.end) score = -INFINITY;
      all[r].add(score, shared.v);
    }
  }

  // Epilogue
  auto* const out = static_cast<float*>(call.out);
#pragma unroll
  for (unsigned r = 0; r < warp_rows; ++r) {
    const std::int32_t query = first + static_cast<std::int32_t>(warp_row + r);
    if (query >= last) break;
    const bool none = all[r].sum == 0;
    float total = all[r].sum, most = all[r].maximum, shrink = 1.F;
    if (call.sinks != nullptr && !none) {
      // Its score may be far above or below the others.
      const float sink = portable_attention::sink_of(call, head) * 0.69314718F;
      most = fmaxf(most, sink);
      shrink = expf(all[r].maximum - most);
      total = total * shrink + expf(sink - most);
    }
    const std::int64_t row = std::int64_t{sequence.q_begin} + query;
#pragma unroll
    for (unsigned c = 0; c < columns; ++c) {
      const unsigned column = lane + c * keys;
      if (column >= call.dim_v) continue;
      out[call.out_strides.at(batch, row, head) + column] =
          none ? 0.F : all[r].sums[c] * shrink / total;
    }
    if (call.lse != nullptr && lane == 0) {
      call.lse[call.lse_strides.at(batch, row, head)] = none ? -INFINITY : most + logf(total);
    }
  }
}

}  // namespace

void attention_portable_f32(const AttentionWork& work, cudaStream_t stream) {
  static_assert(sizeof(Tiles) <= portable_attention::least_shared_bytes);
  portable_attention::launch_all(work, rows, [&](dim3 grid, const Call& call) {
    kit::launch(attention_f32_kernel,
                {.grid = grid, .block = threads, .shared_bytes = sizeof(Tiles)}, stream, call,
                Scoring{work.scale, work.softcap});
  });
}

}  // namespace ps::detail
