// The portable attention, for compute capability 8.0 and later: a block computes 128 queries of one
// head. cp.async loads the next keys while probabilities are multiplied by values, and the values
// while scores are computed; products are mma.sync.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "ops/attention/gpu.h"
#include "ops/attention/portable_softmax.cuh"
#include "ops/attention/portable_tiles.cuh"
#include "penstock/kit/launch.cuh"
#include "penstock/kit/mma.cuh"
#include "penstock/kit/packed.cuh"

namespace ps::detail::portable_attention {

// Configuration. Head dimensions are rounded up to those of a kernel. `keys` are those of a block.
template <class Element_, unsigned dim_, unsigned dim_v_, unsigned keys_>
struct Config {
  using Element = Element_;
  static constexpr unsigned dim = dim_, dim_v = dim_v_, keys = keys_;
  static constexpr unsigned rows = 128;  // of q
  // A warp reads every key and value for all its rows at once: 32 rows, as long as their sums fit
  // into its registers.
  static constexpr unsigned warps = dim > 128 ? 8 : 4;
  static constexpr unsigned threads = warps * kit::warp_threads;
  static constexpr unsigned groups = rows / (16 * warps);  // of 16 rows, per warp

  using Q = RowTile<Element, rows, dim>;
  using K = RowTile<Element, keys, dim>;
  using V = RowTile<Element, keys, dim_v>;
  using O = RowTile<Element, rows, dim_v>;
  static_assert(O::bytes <= Q::bytes, "results are staged in the memory of q");
};

// Shared storage
template <class C>
struct Shared {
  alignas(1024) unsigned char q[C::Q::bytes];  // then the results
  alignas(1024) unsigned char k[C::K::bytes];
  alignas(1024) unsigned char v[C::V::bytes];
};

// The arguments of the kernel.
struct Call {
  AttentionSequences sequences;
  AttentionPages pages;
  const void* q;
  const void* k;
  const void* v;
  void* out;
  AttentionStrides q_strides, k_strides, v_strides, out_strides;
  float* lse;
  AttentionStrides lse_strides;
  AttentionReach reach;
  Scores scores;
  const void* sinks;
  DType sink_type;
  std::uint32_t group, dim, dim_v;
  std::uint32_t first_batch = 0;  // of this launch
};

// In units of log2.
__device__ inline float sink_of(const Call& call, unsigned head) {
  const float sink = call.sink_type == DType::f32 ? static_cast<const float*>(call.sinks)[head]
                     : call.sink_type == DType::f16
                         ? __half2float(static_cast<const __half*>(call.sinks)[head])
                         : __bfloat162float(static_cast<const __nv_bfloat16*>(call.sinks)[head]);
  return sink * 1.44269504F;
}

// What divides a row's sums, with the sink. `maximum` is in units of log2.
struct RowScale {
  float factor, lse;

  __device__ RowScale(const Call& call, std::int32_t head, float maximum, float sum) {
    factor = 0.F;
    lse = -INFINITY;
    if (sum == 0.F) return;
    float shrink = 1.F;
    if (call.sinks != nullptr) {
      // Its score may be far above or below the others.
      const float sink = sink_of(call, static_cast<unsigned>(head));
      const float most = fmaxf(maximum, sink);
      shrink = exp2_approximate(maximum - most);
      sum = sum * shrink + exp2_approximate(sink - most);
      maximum = most;
    }
    factor = shrink / sum;
    lse = (maximum + log2f(sum)) * 0.69314718F;
  }
};

// Keys or values of a head of a sequence.
template <class Element>
__device__ inline KeyRows<const Element> key_rows(const Call& call, const void* data,
                                                  const AttentionStrides& strides,
                                                  std::int32_t batch, std::uint32_t head,
                                                  const AttentionSequence& sequence,
                                                  unsigned columns) {
  const std::int64_t first = call.pages.table != nullptr
                                 ? strides.at(0, 0, head)
                                 : strides.at(batch, sequence.k_begin, head);
  return {{static_cast<const Element*>(data) + first, strides.row,
           static_cast<unsigned>(sequence.k_length), columns},
          call.pages,
          strides.batch,
          batch,
          sequence.k_begin};
}

// One block's work on its queries.
template <class C>
class Tile {
 public:
  using Element = typename C::Element;

  // The last tiles of a sequence first: causal ones have the most keys.
  __device__ Tile(const Call& call, Shared<C>& shared)
      : call_(call),
        shared_(shared),
        head_(blockIdx.y),
        batch_(call.first_batch + blockIdx.z),
        sequence_(call.sequences(static_cast<std::int32_t>(batch_))),
        first_(static_cast<std::int32_t>((gridDim.x - 1 - blockIdx.x) * C::rows)) {}

  __device__ bool is_empty() const { return first_ >= sequence_.q_length; }

  __device__ void run() {
    const std::int32_t last = min(first_ + static_cast<std::int32_t>(C::rows), sequence_.q_length);
    const AttentionBlocks blocks = attention_blocks(first_, last, sequence_.q_length,
                                                    sequence_.k_length, call_.reach, C::keys);
    C::Q::template load<C::threads>(
        shared_.q,
        rows<const Element>(call_.q, call_.q_strides, head_, sequence_.q_begin, sequence_.q_length,
                            call_.dim),
        static_cast<unsigned>(first_));
    const std::uint32_t head_k = head_ / call_.group;
    const KeyRows<const Element> k =
        key_rows<Element>(call_, call_.k, call_.k_strides, static_cast<std::int32_t>(batch_),
                          head_k, sequence_, call_.dim);
    const KeyRows<const Element> v =
        key_rows<Element>(call_, call_.v, call_.v_strides, static_cast<std::int32_t>(batch_),
                          head_k, sequence_, call_.dim_v);
    if (blocks.count() > 0) load_keys(k, blocks.end - 1);
    kit::cp_async_commit();

    for (std::int32_t block = blocks.end - 1; block >= blocks.begin; --block) {
      kit::cp_async_wait<0>();
      __syncthreads();  // the keys are there, and nobody reads the values of the last block
      C::V::template load<C::threads>(shared_.v, v, static_cast<unsigned>(block) * C::keys);
      kit::cp_async_commit();
      float s[C::groups][C::keys / 8][4] = {};
      multiply_keys(s);
      kit::cp_async_wait<0>();
      __syncthreads();  // the values are there, and nobody reads the keys
      if (block > blocks.begin) load_keys(k, block - 1);
      kit::cp_async_commit();
      if (call_.scores.scaled_first) score_first(s, call_.scores);
      if (block < blocks.whole_begin || block >= blocks.whole_end) {
        mask(s, first_ + static_cast<std::int32_t>(row(0)),
             block * static_cast<std::int32_t>(C::keys) +
                 static_cast<std::int32_t>(kit::lane_index() % 4 * 2),
             sequence_.q_length, sequence_.k_length, call_.reach);
      }
      float factors[2 * C::groups];
      softmax_.add(s, call_.scores, factors);
      rescale(factors);
      multiply_values(s);
    }
    kit::cp_async_wait<0>();
    __syncthreads();  // nobody reads q, in whose memory the results are staged
    finish();
  }

 private:
  template <class T, class Pointer>
  __device__ Rows<T> rows(Pointer* data, const AttentionStrides& strides, std::uint32_t head,
                          std::int32_t begin, std::int32_t count, unsigned columns) const {
    return {static_cast<T*>(data) + strides.at(batch_, begin, head), strides.row,
            static_cast<unsigned>(count), columns};
  }

  // The row of the tile that this lane holds in sums of a group of 16 rows, and another 8 behind.
  __device__ unsigned row(unsigned group) const {
    return (kit::warp_index() * C::groups + group) * 16 + kit::lane_index() / 4;
  }

  __device__ void load_keys(const KeyRows<const Element>& k, std::int32_t block) {
    C::K::template load<C::threads>(shared_.k, k, static_cast<unsigned>(block) * C::keys);
  }

  // s += q * transpose(k)
  __device__ void multiply_keys(float (&s)[C::groups][C::keys / 8][4]) const {
    const typename C::Q::Address q_at;
    const typename C::K::Address k_at;
    const unsigned char* const q = shared_.q + kit::warp_index() * C::groups * C::Q::tile_bytes;
#pragma unroll
    for (unsigned slice = 0; slice < C::dim / 16; ++slice) {
      std::uint32_t a[C::groups][4];
#pragma unroll
      for (unsigned g = 0; g < C::groups; ++g) {
        kit::load_matrices(a[g], q + q_at(g, slice));
      }
#pragma unroll
      for (unsigned j = 0; j < C::keys / 16; ++j) {
        std::uint32_t b[4];
        kit::load_matrices(b, shared_.k + k_at(j, slice));
#pragma unroll
        for (unsigned g = 0; g < C::groups; ++g) {
          kit::mma<Element>(s[g][2 * j], a[g], {b[0], b[2]});
          kit::mma<Element>(s[g][2 * j + 1], a[g], {b[1], b[3]});
        }
      }
    }
  }

  __device__ void rescale(const float (&factors)[2 * C::groups]) {
#pragma unroll
    for (unsigned r = 0; r < 2 * C::groups; ++r) {
#pragma unroll
      for (unsigned j = 0; j < C::dim_v / 8; ++j) {
        sums_[r / 2][j][r % 2 * 2] *= factors[r];
        sums_[r / 2][j][r % 2 * 2 + 1] *= factors[r];
      }
    }
  }

  // sums += p * v. The layout of sums of the first product is that of its operand in the second.
  __device__ void multiply_values(const float (&p)[C::groups][C::keys / 8][4]) {
    const typename C::V::Address v_at;
#pragma unroll
    for (unsigned slice = 0; slice < C::keys / 16; ++slice) {
      std::uint32_t a[C::groups][4];
#pragma unroll
      for (unsigned g = 0; g < C::groups; ++g) {
#pragma unroll
        for (unsigned half = 0; half < 2; ++half) {
          const float (&of)[4] = p[g][2 * slice + half];
          a[g][2 * half] = kit::packed(of[0], of[1], Element{});
          a[g][2 * half + 1] = kit::packed(of[2], of[3], Element{});
        }
      }
#pragma unroll
      for (unsigned j = 0; j < C::dim_v / 16; ++j) {
        std::uint32_t b[4];
        kit::load_matrices<true>(b, shared_.v + v_at(slice, j));
#pragma unroll
        for (unsigned g = 0; g < C::groups; ++g) {
          kit::mma<Element>(sums_[g][2 * j], a[g], {b[0], b[1]});
          kit::mma<Element>(sums_[g][2 * j + 1], a[g], {b[2], b[3]});
        }
      }
    }
  }

  // Epilogue: divides by the sums of probabilities, and stores out and lse.
  __device__ void finish() {
    softmax_.finish();
    const float factor = call_.scores.scaled_first ? 1.F : call_.scores.factor;
#pragma unroll
    for (unsigned r = 0; r < 2 * C::groups; ++r) {
      // Without a key, sums may be NaN: weights of 0 times infinite values.
      const bool none = softmax_.sum[r] == 0;
      const RowScale scale(call_, head_, softmax_.maximum[r] * factor, softmax_.sum[r]);
      const auto scaled = [&](float sum) { return none ? 0.F : sum * scale.factor; };
      const unsigned at = row(r / 2) + r % 2 * 8;
#pragma unroll
      for (unsigned j = 0; j < C::dim_v / 8; ++j) {
        const std::uint32_t pair = kit::packed(scaled(sums_[r / 2][j][r % 2 * 2]),
                                               scaled(sums_[r / 2][j][r % 2 * 2 + 1]), Element{});
        *reinterpret_cast<std::uint32_t*>(
            shared_.q + C::O::offset(at, 8 * j + kit::lane_index() % 4 * 2)) = pair;
      }
      const auto query = first_ + static_cast<std::int32_t>(at);
      if (call_.lse != nullptr && kit::lane_index() % 4 == 0 && query < sequence_.q_length) {
        call_.lse[call_.lse_strides.at(batch_, sequence_.q_begin + query, head_)] = scale.lse;
      }
    }
    __syncwarp();
    store();
  }

  // A warp stores its own rows, 16 bytes per lane.
  __device__ void store() const {
    const Rows<Element> out = rows<Element>(call_.out, call_.out_strides, head_, sequence_.q_begin,
                                            sequence_.q_length, call_.dim_v);
    constexpr unsigned count = 16 * C::groups * C::O::chunks;
    const unsigned begin = kit::warp_index() * C::groups * 16;
#pragma unroll 4
    for (unsigned index = kit::lane_index(); index < count; index += kit::warp_threads) {
      const unsigned at = begin + index / C::O::chunks, column = index % C::O::chunks * 8;
      const unsigned query = static_cast<unsigned>(first_) + at;
      if (query >= out.count || column >= out.columns) continue;
      *reinterpret_cast<uint4*>(out.at(query) + column) =
          *reinterpret_cast<const uint4*>(shared_.q + C::O::offset(at, column));
    }
  }

  const Call& call_;
  Shared<C>& shared_;
  std::uint32_t head_, batch_;
  AttentionSequence sequence_;
  std::int32_t first_;
  Softmax<C::groups, C::keys / 8> softmax_;
  float sums_[C::groups][C::dim_v / 8][4] = {};
};

template <class C>
__global__ void __launch_bounds__(C::threads) attention_kernel(const __grid_constant__ Call call) {
  extern __shared__ __align__(1024) unsigned char memory[];
  Tile<C> tile(call, *reinterpret_cast<Shared<C>*>(memory));
  if (!tile.is_empty()) tile.run();
}

// Launch
inline Scores scores_of(const AttentionWork& work) {
  constexpr float log2e = 1.44269504F;
  Scores scores{.factor = work.scale * log2e,
                .inner = 0,
                .outer = 0,
                .capped = false,
                .scaled_first = work.scale < 0 || work.softcap > 0};
  if (work.softcap > 0) {
    scores.capped = true;
    scores.inner = work.scale / work.softcap;
    scores.outer = work.softcap * log2e;
  }
  return scores;
}

inline Call call_of(const AttentionWork& work) {
  return {.sequences = work.sequences,
          .pages = work.pages,
          .q = work.q,
          .k = work.k,
          .v = work.v,
          .out = work.out,
          .q_strides = work.q_strides,
          .k_strides = work.k_strides,
          .v_strides = work.v_strides,
          .out_strides = work.out_strides,
          .lse = work.lse,
          .lse_strides = work.lse_strides,
          .reach = work.reach,
          .scores = scores_of(work),
          .sinks = work.sinks,
          .sink_type = work.sink_type,
          .group = static_cast<std::uint32_t>(work.group()),
          .dim = static_cast<std::uint32_t>(work.dim),
          .dim_v = static_cast<std::uint32_t>(work.dim_v)};
}

// Calls launch(grid, call) with one block per `rows` queries, head and sequence, as many sequences
// at a time as a grid may have.
template <class Launch>
void launch_all(const AttentionWork& work, unsigned rows, const Launch& launch) {
  constexpr unsigned most = 65535;
  Call call = call_of(work);
  const auto longest = static_cast<unsigned>(work.sequences.max_q);
  const auto count = static_cast<unsigned>(work.sequences.count);
  for (; call.first_batch < count; call.first_batch += most) {
    launch(dim3((longest + rows - 1) / rows, static_cast<unsigned>(work.heads_q),
                std::min(most, count - call.first_batch)),
           call);
  }
}

// On GPUs with too little shared memory for it, `Small` instead.
template <class C, class Small = C>
void launch(const AttentionWork& work, cudaStream_t stream) {
  static_assert(sizeof(Shared<Small>) <= least_shared_bytes);
  if constexpr (!std::is_same_v<C, Small>) {
    if (sizeof(Shared<C>) > work.shared_bytes) return launch<Small>(work, stream);
  }
  launch_all(work, C::rows, [&](dim3 grid, const Call& call) {
    kit::launch(attention_kernel<C>,
                {.grid = grid, .block = C::threads, .shared_bytes = sizeof(Shared<C>)}, stream,
                call);
  });
}

template <class Element>
void run(const AttentionWork& work, cudaStream_t stream) {
  const std::int32_t d = work.dim, v = work.dim_v;
  if (d <= 64 && v <= 64) return launch<Config<Element, 64, 64, 64>>(work, stream);
  if (d <= 96 && v <= 96) return launch<Config<Element, 96, 96, 64>>(work, stream);
  // With 64 keys, sums and scores exceed the registers.
  if (d <= 128 && v <= 128) return launch<Config<Element, 128, 128, 48>>(work, stream);
  if (d <= 192 && v <= 128) return launch<Config<Element, 192, 128, 64>>(work, stream);
  launch<Config<Element, 256, 256, 64>, Config<Element, 256, 256, 32>>(work, stream);
}

}  // namespace ps::detail::portable_attention
