// The portable attention of f32: a block computes 16 queries of one head, a warp 4 of them. Scores
// are dot products of a lane's key with a query; results are sums that a lane has of every 32nd
// column.
#include <cstdint>

#include "ops/attention/portable.cuh"

namespace ps::detail {
namespace {

using portable_attention::Call;

// Configuration
constexpr unsigned warps = 4, threads = warps * kit::warp_threads;
constexpr unsigned warp_rows = 4, rows = warps * warp_rows;
constexpr unsigned keys = kit::warp_threads;       // in a block of keys, one per lane
constexpr unsigned most_columns = 256;             // of q, k and v
constexpr unsigned stride = most_columns + 4;      // lanes that read four columns of their own rows
                                                   // use different banks
constexpr unsigned columns = most_columns / keys;  // of a lane
constexpr unsigned all_lanes = 0xffffffff;

// Shared storage
struct Shared {
  alignas(16) float q[rows][stride];
  alignas(16) float k[keys][stride];
  alignas(16) float v[keys][most_columns];
};

// Copies rows that are there, and zeros for others. q is in no pages.
template <unsigned to_stride>
__device__ void load(float (*to)[to_stride], unsigned count, const void* data,
                     const AttentionPages& pages, const AttentionStrides& strides,
                     std::uint32_t batch, std::uint32_t head, std::int64_t first,
                     std::int32_t there, unsigned width) {
  const auto* from = static_cast<const float*>(data);
  for (unsigned i = threadIdx.x; i < count * (width / 4); i += threads) {
    const unsigned row = i / (width / 4), column = i % (width / 4) * 4;
    float4 four{};
    if (static_cast<std::int32_t>(row) < there) {
      const AttentionPlace at = pages(batch, first + row);
      if (at.there) {
        four = *reinterpret_cast<const float4*>(from + strides.at(at.batch, at.row, head) + column);
      }
    }
    *reinterpret_cast<float4*>(&to[row][column]) = four;
  }
}

__device__ float warp_sum(float x) {
  for (unsigned other = 16; other > 0; other /= 2) x += __shfl_xor_sync(all_lanes, x, other);
  return x;
}
__device__ float warp_max(float x) {
  for (unsigned other = 16; other > 0; other /= 2)
    x = fmaxf(x, __shfl_xor_sync(all_lanes, x, other));
  return x;
}

__device__ float dot(const float* a, const float* b, unsigned width) {
  float sum = 0;
  for (unsigned c = 0; c < width; c += 4) {
    const auto x = *reinterpret_cast<const float4*>(a + c);
    const auto y = *reinterpret_cast<const float4*>(b + c);
    sum = fmaf(x.x, y.x, fmaf(x.y, y.y, fmaf(x.z, y.z, fmaf(x.w, y.w, sum))));
  }
  return sum;
}

__global__ void __launch_bounds__(threads, 2)
    attention_f32_kernel(const __grid_constant__ Call call, float scale, float softcap) {
  extern __shared__ __align__(16) unsigned char memory[];
  auto& shared = *reinterpret_cast<Shared*>(memory);
  const std::uint32_t batch = call.first_batch + blockIdx.z, head = blockIdx.y;
  const AttentionSequence sequence = call.sequences(static_cast<std::int32_t>(batch));
  const auto first = static_cast<std::int32_t>((gridDim.x - 1 - blockIdx.x) * rows);
  if (first >= sequence.q_length) return;
  const std::int32_t last = min(first + static_cast<std::int32_t>(rows), sequence.q_length);
  const AttentionBlocks blocks =
      attention_blocks(first, last, sequence.q_length, sequence.k_length, call.reach, keys);
  load(shared.q, rows, call.q, AttentionPages{}, call.q_strides, batch, head,
       std::int64_t{sequence.q_begin} + first, last - first, call.dim);

  const unsigned lane = kit::lane_index(), warp_row = kit::warp_index() * warp_rows;
  float sums[warp_rows][columns] = {}, maximum[warp_rows], sum[warp_rows] = {};
  for (float& each : maximum) each = -INFINITY;
  for (std::int32_t block = blocks.begin; block < blocks.end; ++block) {
    const std::int32_t begin = block * static_cast<std::int32_t>(keys);
    const std::int64_t from = std::int64_t{sequence.k_begin} + begin;
    const std::int32_t there = sequence.k_length - begin;
    __syncthreads();  // nobody reads the last block
    load(shared.k, keys, call.k, call.pages, call.k_strides, batch, head / call.group, from, there,
         call.dim);
    load(shared.v, keys, call.v, call.pages, call.v_strides, batch, head / call.group, from, there,
         call.dim_v);
    __syncthreads();
#pragma unroll
    for (unsigned r = 0; r < warp_rows; ++r) {
      const std::int32_t query = first + static_cast<std::int32_t>(warp_row + r);
      const std::int32_t key = begin + static_cast<std::int32_t>(lane);
      const AttentionKeys own =
          attention_keys(query, sequence.q_length, sequence.k_length, call.reach);
      float score = scale * dot(shared.q[warp_row + r], shared.k[lane], call.dim);
      if (softcap > 0) score = softcap * tanhf(score / softcap);
      if (key < own.begin || key >= own.end) score = -INFINITY;
      const float most = fmaxf(maximum[r], warp_max(score));
      // Without a key so far, all scores are -infinity.
      const float base = most == -INFINITY ? 0.F : most;
      const float factor = expf(maximum[r] - base), p = expf(score - base);
      maximum[r] = most;
      sum[r] = sum[r] * factor + warp_sum(p);
#pragma unroll
      for (unsigned c = 0; c < columns; ++c) sums[r][c] *= factor;
      for (unsigned j = 0; j < keys; ++j) {
        const float weight = __shfl_sync(all_lanes, p, j);
#pragma unroll
        for (unsigned c = 0; c < columns; ++c) {
          // Columns behind the last one hold anything, and their sums are not stored.
          sums[r][c] = fmaf(weight, shared.v[j][lane + c * keys], sums[r][c]);
        }
      }
    }
  }

  // Epilogue
  auto* const out = static_cast<float*>(call.out);
#pragma unroll
  for (unsigned r = 0; r < warp_rows; ++r) {
    const std::int32_t query = first + static_cast<std::int32_t>(warp_row + r);
    if (query >= last) break;
    const bool none = sum[r] == 0;
    float total = sum[r], most = maximum[r], shrink = 1.F;
    if (call.sinks != nullptr && !none) {
      // Its score may be far above or below the others.
      const float sink = portable_attention::sink_of(call, head) * 0.69314718F;
      most = fmaxf(most, sink);
      shrink = expf(maximum[r] - most);
      total = total * shrink + expf(sink - most);
    }
    const std::int64_t row = std::int64_t{sequence.q_begin} + query;
#pragma unroll
    for (unsigned c = 0; c < columns; ++c) {
      const unsigned column = lane + c * keys;
      if (column >= call.dim_v) continue;
      out[call.out_strides.at(batch, row, head) + column] =
          none ? 0.F : sums[r][c] * shrink / total;
    }
    if (call.lse != nullptr && lane == 0) {
      call.lse[call.lse_strides.at(batch, row, head)] = none ? -INFINITY : most + logf(total);
    }
  }
}

}  // namespace

void attention_portable_f32(const AttentionWork& work, cudaStream_t stream) {
  portable_attention::launch_all(work, rows, [&](dim3 grid, const Call& call) {
    kit::launch(attention_f32_kernel,
                {.grid = grid, .block = threads, .shared_bytes = sizeof(Shared)}, stream, call,
                work.scale, work.softcap);
  });
}

}  // namespace ps::detail
