// What a checkpoint says about a tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "penstock/base/view.h"
#include "penstock/weights/element_type.h"

namespace ps {

struct WeightInfo {
  std::string name;
  WeightType type = WeightType::u8;
  std::vector<std::int64_t> shape{};  // empty: one element
  std::size_t file = 0;               // index in Weights::files()
  std::uint64_t offset = 0;           // of the first byte in that file
  std::uint64_t bytes = 0;
};

// `memory`, which holds the tensor, as a view of its elements. Throws InvalidArgument naming the
// tensor if its type is not a DType, such as F8_E4M3, if it has more than max_rank dimensions, or
// if the memory has another size.
TensorView view_of(const WeightInfo& tensor, MemoryView memory);

}  // namespace ps
