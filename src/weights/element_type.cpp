#include "penstock/weights/element_type.h"

#include <array>
#include <cstddef>

#include "penstock/base/error.h"

namespace ps {
namespace {

struct TypeRow {
  WeightType type;
  std::string_view name;
  std::size_t bits;
  std::optional<DType> dtype = std::nullopt;
};

// In the order of the enumeration.
constexpr std::array<TypeRow, 22> type_rows{{
    {WeightType::boolean, "BOOL", 8, DType::boolean},
    {WeightType::f4, "F4", 4},
    {WeightType::f6_e2m3, "F6_E2M3", 6},
    {WeightType::f6_e3m2, "F6_E3M2", 6},
    {WeightType::u8, "U8", 8, DType::u8},
    {WeightType::i8, "I8", 8},
    {WeightType::f8_e5m2, "F8_E5M2", 8},
    {WeightType::f8_e4m3, "F8_E4M3", 8},
    {WeightType::f8_e8m0, "F8_E8M0", 8},
    {WeightType::f8_e4m3fnuz, "F8_E4M3FNUZ", 8},
    {WeightType::f8_e5m2fnuz, "F8_E5M2FNUZ", 8},
    {WeightType::i16, "I16", 16},
    {WeightType::u16, "U16", 16},
    {WeightType::f16, "F16", 16, DType::f16},
    {WeightType::bf16, "BF16", 16, DType::bf16},
    {WeightType::i32, "I32", 32, DType::i32},
    {WeightType::u32, "U32", 32},
    {WeightType::f32, "F32", 32, DType::f32},
    {WeightType::c64, "C64", 64},
    {WeightType::f64, "F64", 64, DType::f64},
    {WeightType::i64, "I64", 64, DType::i64},
    {WeightType::u64, "U64", 64},
}};

const TypeRow* row_of(WeightType type) {
  const auto index = static_cast<std::size_t>(type);
  return index < type_rows.size() ? &type_rows[index] : nullptr;
}

}  // namespace

std::string_view name(WeightType type) {
  const TypeRow* row = row_of(type);
  return row != nullptr ? row->name : "unknown";
}

std::optional<WeightType> find_weight_type(std::string_view text) {
  for (const TypeRow& row : type_rows) {
    if (row.name == text) return row.type;
  }
  return std::nullopt;
}

std::size_t bits_of(WeightType type) {
  const TypeRow* row = row_of(type);
  return row != nullptr ? row->bits : 0;
}

std::optional<DType> dtype_of(WeightType type) {
  const TypeRow* row = row_of(type);
  return row != nullptr ? row->dtype : std::nullopt;
}

WeightType weight_type_of(DType dtype) {
  for (const TypeRow& row : type_rows) {
    if (row.dtype == dtype) return row.type;
  }
  detail::throw_invalid("dtype", "a ps::DType", "another number");
}

}  // namespace ps
