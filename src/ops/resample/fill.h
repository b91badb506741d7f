// The bits of elements that come from no sample.
#pragma once

#include <cstdint>

#include "ops/resample/work.h"

namespace ps::resampling {

struct FillBits {
  std::uint64_t outside = 0;  // `fill`, for Outside::fill
  std::uint64_t missing = 0;  // of a wanted NaN, and of an episode without samples
};
// In the low bytes, for elements of the work's type.
FillBits fill_bits(const detail::ResampleWork& work);

}  // namespace ps::resampling
