#include "penstock/base/dtype.h"

#include <array>
#include <string>
#include <utility>

#include "penstock/base/error.h"

namespace ps {
namespace {
constexpr std::array<std::pair<std::string_view, DType>, 8> names{{
    {"f64", DType::f64},
    {"f32", DType::f32},
    {"f16", DType::f16},
    {"bf16", DType::bf16},
    {"i64", DType::i64},
    {"i32", DType::i32},
    {"u8", DType::u8},
    {"bool", DType::boolean},
}};
}  // namespace

std::string_view name(DType type) {
  for (const auto& [text, value] : names) {
    if (value == type) return text;
  }
  return "unknown";
}

DType parse_dtype(std::string_view text) {
  std::string accepted;
  for (const auto& [known, value] : names) {
    if (known == text) return value;
    accepted += accepted.empty() ? "one of " : ", ";
    accepted += known;
  }
  throw InvalidArgument("dtype", accepted, "'" + std::string(text) + "'");
}

}  // namespace ps
