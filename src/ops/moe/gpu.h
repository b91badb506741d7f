// The kernels of moe() on a GPU, and typed pointers into its workspace. Needs CUDA's headers.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/moe/narrow_items.h"
#include "ops/moe/passes.h"
#include "ops/moe/work.h"
#include "penstock/base/place.h"

namespace ps::detail {

struct MoeSpace {
  unsigned* histograms;
  unsigned* counters;  // items of up, items of down, taken of up, taken of down, passes
  unsigned* offsets;
  unsigned* source;
  int* place;
  std::uint64_t* up_items;
  std::uint64_t* down_items;
  std::uint64_t* passes;
  void* h;  // the first row that is not spare
  void* y;

  explicit MoeSpace(const MoeWork& work)
      : histograms(work.space.histogram_counts(work.memory)),
        counters(reinterpret_cast<unsigned*>(work.memory + work.space.counters)),
        offsets(work.space.expert_offsets(work.memory)),
        source(work.space.source_pairs(work.memory)),
        place(work.space.pair_rows(work.memory)),
        up_items(reinterpret_cast<std::uint64_t*>(work.memory + work.space.up_items)),
        down_items(reinterpret_cast<std::uint64_t*>(work.memory + work.space.down_items)),
        passes(reinterpret_cast<std::uint64_t*>(work.memory + work.space.passes)),
        h(work.space.h_rows(work.memory)),
        y(work.space.y_rows(work.memory)) {}
};

// Whether the kernel for narrow experts computes the down-projection. It has a table of its own
// kind, so the work must be the same when the items are listed.
inline bool moe_narrow(const MoeWork& work) {
  return (work.kernel == MoeKernel::best || work.kernel == MoeKernel::large) &&
         work.width <= std::int64_t{moe_narrow_width} && work.held.down_column == 1 &&
         work.held.down_bias == nullptr;
}

// Sorts the pairs by expert; with `and_list` also does what moe_list() does.
void moe_sort(const MoeWork& work, MoePath path, bool and_list, cudaStream_t stream);
// Lists the work of the experts that are in slots, and marks their rows as computed. The table of
// items, which all kernels but `decode` use, or the table of passes is empty: the latter unless
// `path` is decode, or by_counts and the rows of all experts make it so.
void moe_list(const MoeWork& work, MoePath path, cudaStream_t stream);
// Both products of the listed items. The portable ones need MoeKernel::portable in the work that
// was planned, too: it decides the height of the items.
void moe_products_portable(const MoeWork& work, Place place, cudaStream_t stream);
void moe_products_sm90(const MoeWork& work, Place place, cudaStream_t stream);
void moe_products_sequential_sm90(const MoeWork& work, Place place, cudaStream_t stream);
// Both products of the listed passes, if work.decodes(work.held).
void moe_products_decode_sm90(const MoeWork& work, Place place, cudaStream_t stream);
void moe_add_up(const MoeWork& work, cudaStream_t stream);

}  // namespace ps::detail
