// Views that differ from another in one thing, for tests of errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "penstock/base/view.h"

namespace ps::test {

inline TensorView changed(const TensorView& view, std::vector<std::int64_t> shape,
                          std::vector<std::int64_t> strides = {}) {
  if (strides.empty()) return {view.data(), view.dtype(), shape, view.place()};
  return {view.data(), view.dtype(), shape, strides, view.place()};
}
inline TensorView typed(const TensorView& view, DType type) {
  return {view.data(), type, view.shape(), view.strides(), view.place()};
}
inline TensorView at_place(const TensorView& view, Place place) {
  return {view.data(), view.dtype(), view.shape(), view.strides(), place};
}
inline TensorView moved(const TensorView& view, std::size_t bytes) {
  return {static_cast<std::byte*>(view.data()) + bytes, view.dtype(), view.shape(), view.strides(),
          view.place()};
}

}  // namespace ps::test
