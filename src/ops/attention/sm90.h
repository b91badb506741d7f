// The parts of attention_sm90(): which kernel, what it needs, and its instances.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/attention/work.h"
#include "penstock/base/place.h"

namespace ps::detail {

// Whether the kernels without options suffice: all sequences have the same lengths, k and v are not
// in pages, and the mask has no limit on the left.
inline bool attention_is_plain(const AttentionWork& work) {
  const AttentionSequences& sequences = work.sequences;
  return sequences.cu_q == nullptr && sequences.cu_k == nullptr && sequences.first_k == nullptr &&
         sequences.lengths_k == nullptr && work.pages.table == nullptr &&
         work.reach.left == attention_unlimited && work.softcap == 0.f && work.sinks == nullptr;
}

// Whether tiles may need different times, so that blocks take them from a counter.
inline bool attention_counts_tiles(const AttentionWork& work) {
  const AttentionSequences& sequences = work.sequences;
  return !work.reach.unlimited() || sequences.cu_q != nullptr || sequences.cu_k != nullptr ||
         sequences.first_k != nullptr || sequences.lengths_k != nullptr;
}

// Whether tiles of 192 queries have at most 5 % more rows than tiles of 128.
constexpr bool attention_tall(std::int64_t queries) {
  const std::int64_t tall = (queries + 191) / 192 * 192, low = (queries + 127) / 128 * 128;
  return 20 * tall <= 21 * low;
}

// Sets the counters to 0 and, if sequences have several lengths, lists their tiles of `rows`
// queries, those with the most keys first.
void attention_prepare_sm90(const AttentionWork& work, unsigned rows, cudaStream_t stream);

// In files of their own, because they take long to compile.
template <class Element, bool general>
void attention_sm90(const AttentionWork& work, Place place, cudaStream_t stream);

}  // namespace ps::detail
