// Tensor maps of the arguments of attention().
#pragma once

#include <cstdint>

#include "ops/attention/work.h"
#include "penstock/base/place.h"
#include "penstock/kit/tensor_map.h"

namespace ps::detail {

// Of {batch, heads, rows, dimension}, with a box of some rows and columns of one head. Sequences
// one after the other have a stride of 0 between them.
inline kit::TensorMap attention_map(const AttentionWork& work, Place place, const void* data,
                                    std::int64_t batch, std::int64_t heads, std::int64_t rows,
                                    std::int64_t dim, const AttentionStrides& strides,
                                    std::int64_t box_rows, std::int64_t columns,
                                    kit::Swizzle swizzle,
                                    kit::L2Promotion promotion = kit::L2Promotion::b256) {
  const std::int64_t extents[] = {batch, heads, rows, dim};
  const std::int64_t steps[] = {strides.batch, strides.head, strides.row, 1};
  return kit::encode(
      {.tensor = TensorView(const_cast<void*>(data), work.type, extents, steps, place),
       .box = {1, 1, box_rows, columns},
       .swizzle = swizzle,
       .l2_promotion = promotion});
}

// The rows of one box of keys or values, of which a block of `keys` keys consists: those of a page
// if it has fewer, so that no box crosses a page. Both are multiples of 8.
constexpr std::int64_t attention_box_rows(const AttentionWork& work, std::int64_t keys) {
  if (work.pages.table == nullptr) return keys;
  const std::int64_t rows = work.pages.rows.value();
  std::int64_t box = keys;
  while (rows % box != 0) box /= 2;
  return box;
}

// Of k or v, whose batch is a page if they are in pages.
inline kit::TensorMap attention_map_of_keys(const AttentionWork& work, Place place,
                                            const void* data, std::int64_t dim,
                                            const AttentionStrides& strides, std::int64_t keys,
                                            std::int64_t columns, kit::Swizzle swizzle,
                                            kit::L2Promotion promotion = kit::L2Promotion::b256) {
  const bool paged = work.pages.table != nullptr;
  return attention_map(work, place, data, paged ? work.pages.count : work.sequences.count,
                       work.heads_k, paged ? work.pages.rows.value() : work.sequences.k_rows, dim,
                       strides, attention_box_rows(work, keys), columns, swizzle, promotion);
}

}  // namespace ps::detail
