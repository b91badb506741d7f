// The tensor maps of the experts' weights for the products on Hopper.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/moe/work.h"
#include "penstock/base/view.h"
#include "penstock/kit/tensor_map.h"

namespace ps::detail {

inline kit::TensorMap loaded(const TensorView& tensor, const kit::MapExtents& box) {
  return kit::encode({.tensor = tensor,
                      .box = box,
                      .swizzle = kit::Swizzle::b128,
                      .l2_promotion = kit::L2Promotion::b256});
}

template <std::size_t rank>
kit::TensorMap weights_map(const void* data, const MoeWork& work, Place place,
                           const std::int64_t (&shape)[rank], const std::int64_t (&strides)[rank],
                           const kit::MapExtents& box) {
  return loaded(TensorView(const_cast<void*>(data), work.type, shape, strides, place), box);
}

// Gate and up with contiguous rows, as {slots, n / 8, 2, 8, d}. Each of the `units` of a box is
// eight rows of gate and the eight rows of up that belong to them. The layouts differ only in the
// strides.
inline kit::TensorMap gate_up_rows_map(const MoeWork& work, Place place, std::int64_t units) {
  const std::int64_t row = work.held.gate_up_row, n = work.width;
  const bool interleaved = work.layout == GateUpLayout::interleaved;
  return weights_map(work.held.gate_up, work, place, {work.slot_count, n / 8, 2, 8, work.hidden},
                     {work.held.gate_up_slot, (interleaved ? 16 : 8) * row,
                      interleaved ? row : n * row, interleaved ? 2 * row : row, 1},
                     {1, units, 2, 8, 64});
}

// Gate and up with contiguous columns, as {slots, d, 2n}.
inline kit::TensorMap gate_up_columns_map(const MoeWork& work, Place place) {
  return weights_map(work.held.gate_up, work, place, {work.slot_count, work.hidden, 2 * work.width},
                     {work.held.gate_up_slot, work.held.gate_up_column, 1}, {1, 64, 64});
}

// Down with contiguous rows, as {slots, d, n}, `rows` of them in a box.
inline kit::TensorMap down_rows_map(const MoeWork& work, Place place, std::int64_t rows) {
  return weights_map(work.held.down, work, place, {work.slot_count, work.hidden, work.width},
                     {work.held.down_slot, work.held.down_row, 1}, {1, rows, 64});
}

// Down with contiguous columns, as {slots, n, d}.
inline kit::TensorMap down_columns_map(const MoeWork& work, Place place) {
  return weights_map(work.held.down, work, place, {work.slot_count, work.width, work.hidden},
                     {work.held.down_slot, work.held.down_column, 1}, {1, 64, 64});
}

}  // namespace ps::detail
