// Element types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ps {

// The values are stable, because files contain them. 16 and above are reserved for fp8 types.
enum class DType : std::uint8_t {
  f64 = 0,
  f32 = 1,
  f16 = 2,
  bf16 = 3,
  i64 = 4,
  i32 = 5,
  u8 = 6,
  boolean = 7,
};

// Bytes of one element; 0 for a value that is not a DType.
constexpr std::size_t size_of(DType type) {
  switch (type) {
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::f16:
    case DType::bf16:
      return 2;
    case DType::u8:
    case DType::boolean:
      return 1;
  }
  return 0;
}

constexpr bool is_floating(DType type) {
  return type == DType::f64 || type == DType::f32 || type == DType::f16 || type == DType::bf16;
}

// "f32", "bool", ...; "unknown" for a value that is not a DType.
std::string_view name(DType type);

// The inverse of name(); throws InvalidArgument listing the accepted names.
DType parse_dtype(std::string_view text);

}  // namespace ps
