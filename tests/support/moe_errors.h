// What the tests of moe()'s errors share: what a call is refused for, and views that differ from
// another in one thing.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/ops/moe.h"

namespace ps::test {

struct MoeRefusal {
  std::string argument, expected, given;
};

using MoeStep = void (*)(const MoeOptions&, const Stream&);

inline MoeRefusal moe_refusal(const MoeOptions& options, const Stream& stream, MoeStep step = moe) {
  try {
    step(options, stream);
    stream.synchronize();
  } catch (const InvalidArgument& error) {
    EXPECT_FALSE(error.expected().empty());
    EXPECT_FALSE(error.given().empty());
    return {error.argument(), error.expected(), error.given()};
  }
  return {};
}

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
