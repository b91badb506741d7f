// Numbers of 16 bits on the GPU: random ones, and what the host wants to know of them. The calls
// that return values synchronise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "penstock/base/dtype.h"
#include "penstock/host/buffer.h"
#include "penstock/host/stream.h"

namespace ladder::attention {

constexpr std::size_t element_bytes = 2;
constexpr int nan_byte = 0xff;  // two of them are NaN in both types

// Uniform in [-1, 1], the same for the same seed. `type`: bf16 or f16.
ps::DeviceBuffer random_numbers(const ps::Stream& stream, std::size_t count, ps::DType type,
                                std::uint32_t seed);

// `rows` rows of `width` numbers each, the first number of each `stride` behind that of the one
// before.
std::vector<float> downloaded(const ps::Stream& stream, const void* from, ps::DType type,
                              std::size_t rows, std::size_t width, std::size_t stride);

// How many of `count` numbers are NaN.
unsigned long long count_nan(const ps::Stream& stream, const void* from, ps::DType type,
                             std::size_t count);

}  // namespace ladder::attention
