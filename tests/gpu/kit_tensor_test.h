// Boxes of tensors, random ones that reach over their edges, and a model on the host of how they
// lie in shared memory. For .cu files.
#pragma once

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "gpu/kit_test.h"
#include "penstock/kit/tensor_map.h"

namespace ps::test {

using Bytes = std::vector<unsigned char>;

// Where a box begins, outermost dimension first.
struct Corner {
  int at[5];
};

template <unsigned rank, class Copy>
__device__ void at_corner(const Corner& corner, const Copy& copy) {
  const int* const at = corner.at;
  if constexpr (rank == 1) copy(at[0]);
  if constexpr (rank == 2) copy(at[0], at[1]);
  if constexpr (rank == 3) copy(at[0], at[1], at[2]);
  if constexpr (rank == 4) copy(at[0], at[1], at[2], at[3]);
  if constexpr (rank == 5) copy(at[0], at[1], at[2], at[3], at[4]);
}

inline std::int64_t rounded_up(std::int64_t value, std::int64_t to) {
  return (value + to - 1) / to * to;
}

// A tensor with gaps between its rows, and a box of it. Outermost dimension first.
struct BoxCopy {
  DType type = DType::f32;
  std::vector<std::int64_t> shape{}, strides{};
  kit::TensorMapOptions options{};  // all but the tensor
  Corner corner{};
  unsigned shift = 0;  // of the box in shared memory
  unsigned hint = 0;

  std::size_t rank() const { return shape.size(); }
  std::size_t size() const { return size_of(type); }
  std::size_t tensor_bytes() const {
    std::int64_t last = 0;
    for (std::size_t d = 0; d < rank(); ++d) last += (shape[d] - 1) * strides[d];
    return static_cast<std::size_t>(rounded_up((last + 1) * std::int64_t(size()), 16)) + 64;
  }

  // Elements of the box along a dimension, in all, and its bytes.
  std::int64_t along(std::size_t d) const {
    return (options.box[d] + options.element_strides[d] - 1) / options.element_strides[d];
  }
  std::int64_t elements() const {
    std::int64_t all = 1;
    for (std::size_t d = 0; d < rank(); ++d) all *= along(d);
    return all;
  }
  unsigned bytes() const { return static_cast<unsigned>(elements() * std::int64_t(size())); }

  // Calls visit(byte in the box as it lies in shared memory, byte in the tensor) for every element;
  // the latter is -1 for one beyond the tensor.
  template <class Visit>
  void each(const Visit& visit) const {
    for (std::int64_t i = 0; i < elements(); ++i) {
      std::int64_t rest = i, at = 0;
      bool inside = true;
      for (std::size_t d = rank(); d-- > 0;) {
        const std::int64_t step = rest % along(d) * options.element_strides[d];
        const std::int64_t coordinate = corner.at[d] + step;
        inside = inside && coordinate >= 0 && coordinate < shape[d];
        at += coordinate * strides[d];
        rest /= along(d);
      }
      const auto plain = static_cast<unsigned>(i * std::int64_t(size()));
      visit(kit::swizzled(shift + plain, options.swizzle) - shift,
            inside ? at * std::int64_t(size()) : -1);
    }
  }

  std::string describe() const {
    std::string text = kit::describe(options) + ", corner";
    for (std::size_t d = 0; d < rank(); ++d) text.append(" ").append(std::to_string(corner.at[d]));
    return text + ", shift " + std::to_string(shift) + ", hint " + std::to_string(hint);
  }
};

inline constexpr kit::Swizzle swizzles[] = {kit::Swizzle::none, kit::Swizzle::b32,
                                            kit::Swizzle::b64, kit::Swizzle::b128};

inline constexpr kit::L2Promotion promotions[] = {kit::L2Promotion::none, kit::L2Promotion::b64,
                                                  kit::L2Promotion::b128, kit::L2Promotion::b256};

class KitTensorTest : public KitSm90Test {
 protected:
  // The last dimension has `inner` elements; strides leave random gaps.
  void lay_out(BoxCopy& copy, std::vector<std::int64_t> shape) {
    copy.shape = std::move(shape);
    copy.strides.assign(copy.rank(), 1);
    const std::int64_t chunk = 16 / std::int64_t(copy.size());
    for (std::size_t d = copy.rank() - 1; d-- > 0;) {
      const std::int64_t least = copy.shape[d + 1] * copy.strides[d + 1];
      copy.strides[d] = rounded_up(least, chunk) + from(0, 2) * chunk;
    }
  }

  // Any size of tensor and box; `chunks`: the innermost dimension is a multiple of 16 bytes, too.
  BoxCopy any(std::size_t rank, DType type, bool chunks) {
    constexpr int most[] = {0, 0, 9, 5, 4, 3};
    BoxCopy copy{.type = type};
    const int chunk = 16 / static_cast<int>(copy.size());
    std::vector<std::int64_t> shape;
    for (std::size_t d = 0; d + 1 < rank; ++d) shape.push_back(from(1, 2 * most[rank]));
    shape.push_back(chunks ? from(1, 12) * chunk : from(1, 12 * chunk));
    lay_out(copy, shape);
    for (std::size_t d = 0; d + 1 < rank; ++d) copy.options.box[d] = from(1, most[rank]);
    copy.options.box[rank - 1] = from(1, 8) * chunk;
    for (std::size_t d = 0; d < rank; ++d) {
      const int box = static_cast<int>(copy.options.box[d]);
      copy.corner.at[d] = from(-box, static_cast<int>(copy.shape[d]));
    }
    copy.corner.at[rank - 1] = copy.corner.at[rank - 1] / chunk * chunk;
    copy.hint = static_cast<unsigned>(from(0, hints - 1));
    return copy;
  }

  static kit::TensorMap map_of(BoxCopy& copy, void* data, Place place = {Memory::device, 0}) {
    copy.options.tensor = TensorView(data, copy.type, copy.shape, copy.strides, place);
    return kit::encode(copy.options);
  }

  // Calls `run_in(rank as a type)`.
  template <class Run>
  static void in_rank(std::size_t rank, const Run& run_in) {
    if (rank == 1) run_in(std::integral_constant<unsigned, 1>());
    if (rank == 2) run_in(std::integral_constant<unsigned, 2>());
    if (rank == 3) run_in(std::integral_constant<unsigned, 3>());
    if (rank == 4) run_in(std::integral_constant<unsigned, 4>());
    if (rank == 5) run_in(std::integral_constant<unsigned, 5>());
  }
};

}  // namespace ps::test
