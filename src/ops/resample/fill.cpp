#include "ops/resample/fill.h"

#include <bit>
#include <cmath>
#include <limits>

#include "ops/transform/half.h"

namespace ps::resampling {
namespace {

// Every NaN is the plain one; an integer, which the door found to fit, has no NaN and gets 0.
std::uint64_t bits_of(double x, DType type) {
  const bool nan = std::isnan(x);
  switch (type) {
    case DType::f64:
      return std::bit_cast<std::uint64_t>(nan ? std::numeric_limits<double>::quiet_NaN() : x);
    case DType::f32:
      return std::bit_cast<std::uint32_t>(nan ? std::numeric_limits<float>::quiet_NaN()
                                              : static_cast<float>(x));
    case DType::f16: {
      detail::F16 half;
      detail::narrow(static_cast<float>(x), half);
      return nan ? 0x7E00U : half.bits;
    }
    case DType::bf16: {
      detail::BF16 half;
      detail::narrow(static_cast<float>(x), half);
      return nan ? 0x7FC0U : half.bits;
    }
    case DType::i64:
    case DType::i32:
    case DType::u8:
    case DType::boolean:
      break;
  }
  return nan ? 0 : static_cast<std::uint64_t>(static_cast<std::int64_t>(x));
}

}  // namespace

FillBits fill_bits(const detail::ResampleWork& work) {
  const std::uint64_t fill = bits_of(work.fill, work.type);
  return {fill, is_floating(work.type) ? bits_of(NAN, work.type) : fill};
}

}  // namespace ps::resampling
