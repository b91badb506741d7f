// Element types of safetensors files. There are more than in DType: bytes of every type can be
// read, but only some types have tensor views.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "penstock/base/dtype.h"

namespace ps {

enum class WeightType : std::uint8_t {
  boolean,
  f4,  // two elements per byte
  f6_e2m3,
  f6_e3m2,
  u8,
  i8,
  f8_e5m2,
  f8_e4m3,
  f8_e8m0,
  f8_e4m3fnuz,
  f8_e5m2fnuz,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  c64,  // complex, two f32
  f64,
  i64,
  u64,
};

// As in files: "BF16", "F8_E4M3", "BOOL"; "unknown" for a value that is not a WeightType.
std::string_view name(WeightType type);

// The inverse of name(); nothing for other text.
std::optional<WeightType> find_weight_type(std::string_view text);

// Bits of one element, 4 to 64; 0 for a value that is not a WeightType.
std::size_t bits_of(WeightType type);

// The DType with the same elements; nothing if there is none.
std::optional<DType> dtype_of(WeightType type);
WeightType weight_type_of(DType dtype);

}  // namespace ps
