// The arguments of the decode kernels, and where a block of threads begins.
#pragma once

#include <cstdint>

#include "ops/attention/decode_parts.h"
#include "ops/attention/portable.cuh"
#include "penstock/kit/warp.cuh"

namespace ps::detail::decoding {

// What parts compute of items that they do not compute alone: rows of sums of values weighted by
// exp2(score - maximum), and {maximum, sum of the weights}, both in units of log2.
struct Partials {
  DecodeJoint* joints;
  float2* stats;
  float* sums;  // (rows, Dv)
  DecodeRows rows;
};

// Without tensor cores, a tile of f32 has 16 rows.
inline constexpr std::int32_t row_tiles_of_f32 = 1;

struct DecodeCall {
  static constexpr bool appends = false;  // AppendDecodeCall: true

  portable_attention::Call call;
  DecodeShape shape;
  Partials partials;
  kit::Divisor group;  // query heads of a head of k
};

// For blocks of `keys` keys.
inline DecodeCall decode_call(const AttentionWork& work, std::int32_t keys) {
  const AttentionDecodeSpace& space = work.decode_space;
  return {.call = portable_attention::call_of(work),
          .shape = {.sequences = work.sequences,
                    .reach = work.reach,
                    .heads_k = work.heads_k,
                    .group = work.group(),
                    .keys = keys,
                    .most_row_tiles = work.type == DType::f32 ? row_tiles_of_f32 : 4,
                    .aligned = work.pages.table != nullptr,
                    .chunked = work.batch_invariant},
          .partials = {.joints = reinterpret_cast<DecodeJoint*>(work.memory + space.joints),
                       .stats = reinterpret_cast<float2*>(work.memory + space.stats),
                       .sums = reinterpret_cast<float*>(work.memory + space.sums),
                       .rows = {.tile_rows = space.tile_rows, .chunks = space.chunks}},
          .group = kit::Divisor(static_cast<unsigned>(work.group()))};
}

// The same as a type that may have more members.
template <class Call>
Call decode_call(const AttentionWork& work, std::int32_t keys) {
  Call call{decode_call(work, keys)};
  if constexpr (Call::appends) call.append = *work.append;
  return call;
}

// The blocks of threads of a launch, of which `resident` fit on the GPU.
inline unsigned decode_grid(const AttentionWork& work, unsigned resident) {
  const DecodeShape shape = decode_call(work, 64).shape;
  return static_cast<unsigned>(decode_blocks(shape, static_cast<std::int32_t>(resident)));
}

// A row of the result.
struct ResultRow {
  std::int32_t query, head;
  std::int64_t number;  // among all, as in lse

  __device__ ResultRow(const DecodeCall& decode, const AttentionSequence& sequence,
                       std::int32_t batch, std::int32_t head_k, std::int32_t row) {
    query = static_cast<std::int32_t>(decode.group.divide(static_cast<unsigned>(row)));
    const auto group = static_cast<std::int32_t>(decode.group.value());
    head = head_k * group + row - query * group;
    number = decode.call.lse_strides.at(batch, sequence.q_begin + query, head);
  }
};

// The pieces of a block of threads.
struct Part {
  std::int64_t total, begin, end;
  std::int32_t parts, sequence;  // parts that are not empty, and where the part begins
  std::int64_t offset;           // pieces of this sequence before the part

  __device__ std::int64_t count() const { return end - begin; }
};

// The memory with which a block finds its part.
struct PartSearch {
  std::int64_t warps[32];
  Part part;
};

// The sum over the block's threads before this one, and that of all threads. Synchronises.
template <unsigned threads>
__device__ inline std::int64_t sum_before(std::int64_t own, std::int64_t (&warps)[32],
                                          std::int64_t& all) {
  std::int64_t sum = own;
  for (unsigned by = 1; by < kit::warp_threads; by *= 2) {
    const std::int64_t before = __shfl_up_sync(~0U, sum, by);
    if (kit::lane_index() >= by) sum += before;
  }
  __syncthreads();  // nobody reads the sums of the call before
  if (kit::lane_index() == kit::warp_threads - 1) warps[threadIdx.x / kit::warp_threads] = sum;
  __syncthreads();
  std::int64_t before = sum - own;
  all = 0;
  for (unsigned warp = 0; warp < threads / kit::warp_threads; ++warp) {
    if (warp < threadIdx.x / kit::warp_threads) before += warps[warp];
    all += warps[warp];
  }
  return before;
}

// Leaves the part in search.part. Called by all threads of the block.
template <unsigned threads>
__device__ inline void find_part(const DecodeShape& shape, PartSearch& search) {
  const auto count = shape.sequences.count;
  const auto cut = [&](std::int64_t total) {
    Part part{};
    part.total = total;
    part.parts = static_cast<std::int32_t>(gridDim.x);
    if (part.parts > total) part.parts = static_cast<std::int32_t>(total);
    const auto number = static_cast<std::int32_t>(blockIdx.x);
    if (number < part.parts) {
      part.begin = decode_cut(total, part.parts, number);
      part.end = decode_cut(total, part.parts, number + 1);
    }
    return part;
  };
  if (shape.alike()) {
    const std::int64_t each = shape.pieces(shape(0));
    Part part = cut(each * count);
    if (part.count() > 0) {
      part.sequence = static_cast<std::int32_t>(part.begin / each);
      part.offset = part.begin - part.sequence * each;
    }
    if (threadIdx.x == 0) search.part = part;
    return __syncthreads();
  }
  // A thread has every `threads`th sequence, so that the lengths are read once or twice.
  const auto pieces = [&](std::int32_t b) {
    return b < count ? shape.pieces(shape(b)) : std::int64_t{0};
  };
  const auto thread = static_cast<std::int32_t>(threadIdx.x);
  std::int64_t own = 0, total = 0;
  for (std::int32_t b = thread; b < count; b += threads) own += pieces(b);
  sum_before<threads>(own, search.warps, total);
  Part part = cut(total);
  if (part.count() == 0 && threadIdx.x == 0) search.part = part;
  std::int64_t done = 0;
  for (std::int32_t first = 0; part.count() > 0 && done <= part.begin; first += threads) {
    const std::int64_t here = pieces(first + thread);
    std::int64_t all = 0;
    const std::int64_t before = done + sum_before<threads>(here, search.warps, all);
    if (before <= part.begin && part.begin < before + here) {
      part.sequence = first + thread;
      part.offset = part.begin - before;
      search.part = part;
    }
    done += all;
  }
  __syncthreads();
}

// A run and its sequence. In shared memory, where the threads that multiply read it.
struct SequenceRun {
  DecodeSequence sequence;
  DecodeRun run;

  __device__ std::int32_t first_key(std::int32_t block, std::int32_t keys) const {
    return sequence.first_key(block, keys);
  }
};

// Tells the combination which item this part leaves to others, if any. `last` is its last run.
__device__ inline void store_joint(const DecodeCall& decode, const Part& part,
                                   const DecodeRun& last) {
  DecodeJoint joint{-1, 0, 0, 0};
  if (part.count() > 0 && !decode.shape.chunked) {
    joint = decode_joint(part.total, part.parts, part.end, last);
  }
  decode.partials.joints[blockIdx.x] = joint;
}

// One block of keys of a run, as a step of the kernels.
struct alignas(8) DecodeStep {
  std::int32_t block = 0;
  unsigned char run = 0;              // index in the ring of runs
  bool is_there = false;              // false behind the last one
  bool begins = false, ends = false;  // the run
};

// The steps of a part, one after the other. Several threads may have the same steps.
class DecodeSteps {
 public:
  __device__ DecodeSteps(const DecodeCall& decode, const Part& part)
      : decode_(decode),
        part_(part),
        walk_(decode.shape, part.sequence, part.offset, part.count()) {}

  // If a run begins, it is the next one in the ring `runs`, where it is stored if `stores`. A ring
  // of n runs is enough for n steps at a time.
  template <unsigned depth>
  __device__ DecodeStep next(SequenceRun (&runs)[depth], bool stores) {
    DecodeStep step;
    step.begins = ++block_ >= run_.end;
    if (step.begins) {
      if (!walk_.next(run_)) return step;
      block_ = run_.begin;
      index_ = index_ + 1 == depth ? 0 : index_ + 1;
      if (stores) runs[index_] = run();
    }
    step.is_there = true;
    step.block = block_;
    step.run = static_cast<unsigned char>(index_);
    step.ends = block_ + 1 == run_.end;
    return step;
  }

  // That of the last step.
  __device__ SequenceRun run() const { return {walk_.sequence(), run_}; }

  // The last call.
  __device__ void store_joint() const { decoding::store_joint(decode_, part_, run_); }

 private:
  const DecodeCall& decode_;
  const Part& part_;
  DecodeWalk walk_;
  DecodeRun run_{};
  std::int32_t block_ = -1;
  unsigned index_ = 0;  // of the run in its ring
};

}  // namespace ps::detail::decoding
