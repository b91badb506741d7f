// The CPU's transform, a range of the work at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/transform/dispatch.h"
#include "ops/transform/half.h"
#include "ops/transform/transform.h"

namespace ps::detail {

using CpuTypes = elementwise::ElementTypes<float, F16, BF16, true>;

// Whether results pass by the caches: right for what is larger than they are.
enum class Caching : std::uint8_t { keep, pass };

// Elements [begin, end) of a function that is no copy. What went past the caches is ordered before
// what the thread does next.
using CpuRange = void (*)(const TransformWork& work, std::size_t begin, std::size_t end,
                          Caching caching);
void transform_baseline(const TransformWork& work, std::size_t begin, std::size_t end,
                        Caching caching);

// With AVX2, FMA and F16C; null where this CPU or compiler has them not.
CpuRange transform_avx2();

}  // namespace ps::detail
