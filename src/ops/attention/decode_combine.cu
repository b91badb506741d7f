// Combines what parts of the decode kernels computed of the same rows, in the order of their keys.
#include <algorithm>
#include <cstdint>

#include "ops/attention/decode.h"
#include "ops/attention/decode_call.cuh"
#include "ops/attention/warp_reduce.cuh"
#include "penstock/kit/launch.cuh"

namespace ps::detail {
namespace {

using decoding::DecodeCall;
using decoding::ResultRow;
using portable_attention::RowScale;

// Configuration
constexpr unsigned warps = 4, threads = warps * kit::warp_threads;  // a warp combines a row
constexpr unsigned lane_columns = 4;

__device__ void store_four(float* to, const float4& four) { *reinterpret_cast<float4*>(to) = four; }
template <class Element>
__device__ void store_four(Element* to, const float4& four) {
  *reinterpret_cast<uint2*>(to) = {kit::packed(four.x, four.y, Element{}),
                                   kit::packed(four.z, four.w, Element{})};
}

// Combines rows number(0) to number(count - 1) of the partial results.
template <class Element, class Number>
__device__ void combine(const DecodeCall& decode, const AttentionSequence& sequence,
                        std::int32_t batch, const ResultRow& row, std::int32_t count,
                        const Number& number) {
  const portable_attention::Call& call = decode.call;
  const float2* const stats = decode.partials.stats;
  const auto lane = static_cast<std::int32_t>(kit::lane_index());
  float most = -INFINITY, sum = 0.F;
  for (std::int32_t i = lane; i < count; i += 32) most = fmaxf(most, stats[number(i)].x);
  most = warp_max(most);
  const float base = most == -INFINITY ? 0.F : most;
  for (std::int32_t i = lane; i < count; i += 32) {
    const float2 own = stats[number(i)];
    sum += own.y * portable_attention::exp2_approximate(own.x - base);
  }
  sum = warp_sum(sum);
  const RowScale scale(call, row.head, most, sum);
  if (call.lse != nullptr && lane == 0) call.lse[row.number] = scale.lse;
  auto* const out = static_cast<Element*>(call.out) +
                    call.out_strides.at(batch, sequence.q_begin + row.query, row.head);
  for (unsigned column = kit::lane_index() * lane_columns; column < call.dim_v;
       column += kit::warp_threads * lane_columns) {
    float4 all{};
#pragma unroll 8
    for (std::int32_t i = 0; i < count; ++i) {
      const std::int64_t at = number(i);
      const float weight = portable_attention::exp2_approximate(stats[at].x - base) * scale.factor;
      const auto four =
          *reinterpret_cast<const float4*>(decode.partials.sums + at * call.dim_v + column);
      all.x = fmaf(weight, four.x, all.x);
      all.y = fmaf(weight, four.y, all.y);
      all.z = fmaf(weight, four.z, all.z);
      all.w = fmaf(weight, four.w, all.w);
    }
    store_four(out + column, all);
  }
}

// Items that a part leaves to others: the part is blockIdx.x, the row one of blockIdx.y.
template <class Element>
__global__ void __launch_bounds__(threads)
    combine_parts(const __grid_constant__ DecodeCall decode) {
  kit::let_next_start();
  kit::wait_for_previous();
  const auto part = static_cast<std::int32_t>(blockIdx.x);
  const DecodeJoint joint = decode.partials.joints[part];
  if (joint.sequence < 0) return;
  const DecodeSequence sequence = decode.shape(joint.sequence);
  const auto in_tile = static_cast<std::int32_t>(blockIdx.y * warps + kit::warp_index());
  const std::int32_t index = sequence.first_row(joint.tile) + in_tile;
  if (in_tile >= sequence.tile_rows() || index >= sequence.at.q_length * decode.shape.group) return;
  const ResultRow row(decode, sequence.at, joint.sequence, joint.head, index);
  combine<Element>(
      decode, sequence.at, joint.sequence, row, joint.last_part - part + 1,
      [&](std::int32_t i) { return decode.partials.rows.of_part(part + i, i == 0, in_tile); });
}

// The chunks of every row, of head blockIdx.y. Each block goes on with the rows and sequences that
// are a whole grid away.
template <class Element>
__global__ void __launch_bounds__(threads)
    combine_chunks(const __grid_constant__ DecodeCall decode) {
  kit::let_next_start();
  kit::wait_for_previous();
  const auto first = static_cast<std::int32_t>(blockIdx.x * warps + kit::warp_index());
  const auto head = static_cast<std::int32_t>(blockIdx.y);
  for (auto batch = static_cast<std::int32_t>(blockIdx.z); batch < decode.shape.sequences.count;
       batch += static_cast<std::int32_t>(gridDim.z)) {
    const DecodeSequence sequence = decode.shape(batch);
    if (sequence.pieces == 1) continue;
    const std::int32_t rows = sequence.at.q_length * decode.shape.group;
    for (std::int32_t i = first; i < rows; i += static_cast<std::int32_t>(gridDim.x * warps)) {
      const ResultRow row(decode, sequence.at, batch, head, i);
      combine<Element>(decode, sequence.at, batch, row, sequence.pieces, [&](std::int32_t c) {
        return decode.partials.rows.of_chunk(row.number, c);
      });
    }
  }
}

template <class Element>
void combine(const AttentionWork& work, std::int32_t parts, std::int32_t keys,
             cudaStream_t stream) {
  const DecodeCall call = decoding::decode_call(work, keys);
  kit::LaunchOptions options;
  options.block = threads;
  options.overlaps_previous = true;
  if (work.batch_invariant) {
    // Without `max_q` any sequence may have all queries, so that most of these rows do not exist.
    const auto blocks = [](std::int64_t wanted, std::int64_t most) {
      return static_cast<unsigned>(std::min(wanted, most));
    };
    const std::int64_t rows = std::int64_t{work.sequences.max_q} * work.group();
    options.grid = dim3(blocks((rows + warps - 1) / warps, 256),
                        static_cast<unsigned>(work.heads_k), blocks(work.sequences.count, 4096));
    return kit::launch(combine_chunks<Element>, options, stream, call);
  }
  options.grid = dim3(static_cast<unsigned>(parts),
                      (static_cast<unsigned>(work.decode_space.tile_rows) + warps - 1) / warps);
  kit::launch(combine_parts<Element>, options, stream, call);
}

}  // namespace

void attention_decode_combine(const AttentionWork& work, std::int32_t parts, std::int32_t keys,
                              cudaStream_t stream) {
  if (work.type == DType::f32) return combine<float>(work, parts, keys, stream);
  if (work.type == DType::f16) return combine<__half>(work, parts, keys, stream);
  combine<__nv_bfloat16>(work, parts, keys, stream);
}

}  // namespace ps::detail
