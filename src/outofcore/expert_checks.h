// Checks of arguments that name experts.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "penstock/base/error.h"
#include "penstock/outofcore/expert_store.h"

namespace ps::detail {

inline void check_index(const char* name, std::int64_t value, std::int64_t end) {
  if (value >= 0 && value < end) return;
  throw_invalid(name, fmt::format("from 0 to {}", end - 1), std::to_string(value));
}

inline void check_expert(const ExpertShape& shape, std::int64_t layer, std::int64_t expert) {
  check_index("layer", layer, shape.layers);
  check_index("expert", expert, shape.experts);
}

}  // namespace ps::detail
