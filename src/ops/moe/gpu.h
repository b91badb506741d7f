// The kernels of moe() on a GPU, and typed pointers into its workspace. Needs CUDA's headers.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/moe/work.h"
#include "penstock/base/place.h"

namespace ps::detail {

struct MoeSpace {
  unsigned* histograms;
  unsigned* counters;  // items of up, items of down, taken of up, taken of down
  unsigned* offsets;
  unsigned* source;
  int* place;
  std::uint64_t* up_items;
  std::uint64_t* down_items;
  void* h;  // the first row that is not spare
  void* y;

  explicit MoeSpace(const MoeWork& work) {
    const auto at = [&](std::size_t offset) { return work.memory + offset; };
    const auto rows = [&](std::size_t offset, std::int64_t columns) {
      return at(offset) + static_cast<std::size_t>(moe_spare_rows * columns) * size_of(work.type);
    };
    histograms = reinterpret_cast<unsigned*>(at(work.space.histograms));
    counters = reinterpret_cast<unsigned*>(at(work.space.counters));
    offsets = reinterpret_cast<unsigned*>(at(work.space.offsets));
    source = reinterpret_cast<unsigned*>(at(work.space.source));
    place = reinterpret_cast<int*>(at(work.space.place));
    up_items = reinterpret_cast<std::uint64_t*>(at(work.space.up_items));
    down_items = reinterpret_cast<std::uint64_t*>(at(work.space.down_items));
    h = rows(work.space.h, work.width);
    y = rows(work.space.y, work.hidden);
  }
};

// Sorts the pairs by expert; with `and_list` also does what moe_list() does.
void moe_sort(const MoeWork& work, bool and_list, cudaStream_t stream);
// Lists the work items of the experts that are in slots, and marks their rows as computed.
void moe_list(const MoeWork& work, cudaStream_t stream);
// Both products of the listed items.
void moe_products_sm90(const MoeWork& work, Place place, cudaStream_t stream);
void moe_add_up(const MoeWork& work, cudaStream_t stream);

}  // namespace ps::detail
