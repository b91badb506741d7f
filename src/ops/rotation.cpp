#include "ops/rotation.h"

#include <algorithm>

#include "host/random_fill.h"
#include "penstock/base/checked.h"
#include "penstock/host/stream.h"

namespace ps::detail {

Rotation::Rotation(const Device& device, std::size_t bytes)
    : bytes_(bytes),
      stride_(ceil_div(bytes, std::size_t{256}) * 256),
      sets_(std::max(std::size_t{2}, ceil_div(3 * device.capabilities().l2_bytes, stride_))),
      memory_(device, sets_ * stride_) {
  scatter_random(memory_.view(), Stream(device));
}

MemoryView Rotation::operator()(std::size_t number) const {
  return memory_.view().sub(number % sets_ * stride_, bytes_);
}

}  // namespace ps::detail
