// The decode kernel of f32, for compute capability 8.0 and later: a tile has 16 rows, of which a
// warp computes every fourth.
#include <cstdint>

#include "ops/attention/append_decode.cuh"
#include "ops/attention/decode.h"
#include "ops/attention/portable_f32.cuh"
#include "penstock/kit/launch.cuh"

namespace ps::detail {
namespace {

using namespace attention_f32;
using decoding::AppendDecodeCall;
using decoding::DecodeCall;
using decoding::Part;
using decoding::ResultRow;
using decoding::SequenceRun;
using portable_attention::RowScale;

// Configuration
struct Config {
  using Element = float;
  static constexpr unsigned dim = most_columns, dim_v = most_columns, warps = attention_f32::warps;
};
static_assert(rows == 16 * decoding::row_tiles_of_f32);

// Shared storage
struct Shared {
  Tiles tiles;
  decoding::PartSearch search;
};

// The runs of a block of threads.
template <class Call>
class F32Decode {
 public:
  __device__ F32Decode(const Call& decode, const Scoring& score_of, Tiles& shared)
      : decode_(decode), score_of_(score_of), shared_(shared) {}

  // Called by all threads.
  __device__ void run(const SequenceRun& of) {
    const unsigned count = rows_of(of);
    __syncthreads();  // nobody reads the queries of the run before
    load_queries(of, count);
    Row all[warp_rows];
    for (std::int32_t block = of.run.begin; block < of.run.end; ++block) {
      const std::int32_t first = of.first_key(block, static_cast<std::int32_t>(keys));
      __syncthreads();  // the queries are there, and nobody reads the last block
      load_keys(of, first);
      __syncthreads();
      const std::int32_t key = first + static_cast<std::int32_t>(kit::lane_index());
#pragma unroll
      for (unsigned r = 0; r < warp_rows; ++r) {
        if (row(r) >= count) break;
        const AttentionSequence& sequence = of.sequence.at;
        const AttentionKeys own = attention_keys(result_of(of, row(r)).query, sequence.q_length,
                                                 sequence.k_length, decode_.shape.reach);
        float score =
            score_of_(dot(shared_.q[row(r)], shared_.k[kit::lane_index()], decode_.call.dim));
        if (key < own.begin || key >= own.end) score = -INFINITY;
        all[r].add(score, shared_.v);
      }
    }
#pragma unroll
    for (unsigned r = 0; r < warp_rows; ++r) {
      if (row(r) < count) finish(of, row(r), all[r]);
    }
  }

 private:
  // Row r of this warp, in the tile.
  __device__ static unsigned row(unsigned r) { return kit::warp_index() + r * warps; }

  // Rows of the tile that are there.
  __device__ unsigned rows_of(const SequenceRun& of) const {
    return static_cast<unsigned>(of.sequence.rows_of(of.run.tile, decode_.shape.group));
  }
  __device__ ResultRow result_of(const SequenceRun& of, unsigned row) const {
    return {decode_, of.sequence.at, of.run.sequence, of.run.head,
            of.sequence.first_row(of.run.tile) + static_cast<std::int32_t>(row)};
  }

  __device__ const float* query(const SequenceRun& of, const ResultRow& own) const {
    return static_cast<const float*>(decode_.call.q) +
           decode_.call.q_strides.at(of.run.sequence, of.sequence.at.q_begin + own.query, own.head);
  }

  __device__ void load_queries(const SequenceRun& of, unsigned count) {
    const unsigned pairs = decode_.call.dim / 2;
    for (unsigned i = threadIdx.x; i < count * pairs; i += threads) {
      const ResultRow own = result_of(of, i / pairs);
      float* const to = shared_.q[i / pairs];
      if constexpr (Call::appends) {
        if (decode_.append.rotated > 0) {
          decoding::rotated_pair(decode_.append, query(of, own),
                                 decode_.append.position(of.run.sequence, own.query), i % pairs)
              .store(to);
          continue;
        }
      }
      decoding::neighbours(query(of, own), i % pairs).store(to);
    }
  }

  __device__ void load_keys(const SequenceRun& of, std::int32_t first) {
    const portable_attention::Call& call = decode_.call;
    const auto source = [&](const void* data, const AttentionStrides& strides) -> Source {
      return {data,
              call.pages,
              strides,
              static_cast<std::uint32_t>(of.run.sequence),
              static_cast<std::uint32_t>(of.run.head),
              of.sequence.at.k_begin,
              of.sequence.at.k_length};
    };
    load(shared_.k, keys, source(call.k, call.k_strides), first, call.dim);
    load(shared_.v, keys, source(call.v, call.v_strides), first, call.dim_v);
  }

  // Stores a row of the tile as a result or for the combination.
  __device__ void finish(const SequenceRun& of, unsigned row, const Row& found) const {
    const portable_attention::Call& call = decode_.call;
    const decoding::Partials& partials = decode_.partials;
    const ResultRow result = result_of(of, row);
    const unsigned lane = kit::lane_index();
    const float most = found.maximum * 1.44269504F;  // in units of log2
    float factor = 1.F;
    float* to = nullptr;
    if (of.run.is_whole()) {
      const RowScale scale(call, result.head, most, found.sum);
      if (call.lse != nullptr && lane == 0) call.lse[result.number] = scale.lse;
      factor = scale.factor;
      to = static_cast<float*>(call.out) +
           call.out_strides.at(of.run.sequence, of.sequence.at.q_begin + result.query, result.head);
    } else {
      const std::int64_t at = partials.rows.of_run(static_cast<std::int32_t>(blockIdx.x), of.run,
                                                   static_cast<std::int32_t>(row), result.number);
      if (lane == 0) partials.stats[at] = {most, found.sum};
      to = partials.sums + at * call.dim_v;
    }
    // Without a key, sums may be NaN: weights of 0 times infinite values.
    const bool none = found.maximum == -INFINITY;
#pragma unroll
    for (unsigned c = 0; c < columns; ++c) {
      const unsigned column = lane + c * keys;
      if (column < call.dim_v) to[column] = (none ? 0.F : found.sums[c]) * factor;
    }
  }

  const Call& decode_;
  const Scoring& score_of_;
  Tiles& shared_;
};

template <class Call>
__global__ void __launch_bounds__(threads, 2)
    decode_f32_kernel(const __grid_constant__ Call decode,
                      const __grid_constant__ Scoring score_of) {
  extern __shared__ __align__(16) unsigned char memory[];
  auto& shared = *reinterpret_cast<Shared*>(memory);

  // Setup
  decoding::find_part<threads>(decode.shape, shared.search);
  const Part& part = shared.search.part;
  if constexpr (Call::appends) decoding::append_rows_of_part<Config>(decode, part);

  // Runs
  DecodeWalk walk(decode.shape, part.sequence, part.offset, part.count());
  F32Decode<Call> tile(decode, score_of, shared.tiles);
  DecodeRun run;
  while (walk.next(run)) tile.run({walk.sequence(), run});
  if (threadIdx.x == 0) decoding::store_joint(decode, part, run);
}

// Launch
template <class Call>
void launch(const AttentionWork& work, cudaStream_t stream) {
  static_assert(sizeof(Shared) <= portable_attention::least_shared_bytes);
  kit::LaunchOptions options;
  options.block = threads;
  options.shared_bytes = sizeof(Shared);
  options.grid =
      decoding::decode_grid(work, kit::resident_clusters(decode_f32_kernel<Call>, options));
  kit::launch(decode_f32_kernel<Call>, options, stream, decoding::decode_call<Call>(work, keys),
              Scoring{work.scale, work.softcap});
  attention_decode_combine(work, static_cast<std::int32_t>(options.grid.x), keys, stream);
}

}  // namespace

void attention_decode_portable_f32(const AttentionWork& work, cudaStream_t stream) {
  launch<DecodeCall>(work, stream);
}

void attention_append_decode_portable_f32(const AttentionWork& work, cudaStream_t stream) {
  launch<AppendDecodeCall>(work, stream);
}

}  // namespace ps::detail
