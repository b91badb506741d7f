// What tune() does, for operators that a test may make up.
#pragma once

#include <span>

#include "ops/tunable.h"
#include "penstock/measure/tune.h"

namespace ps::detail {

using Tunables = std::span<const Tunable* const>;

Tuning tune(const Device& device, const TuneOptions& options, Tunables operators);
TuneState tune_state(const Device& device, std::string_view op, Tunables operators);

}  // namespace ps::detail
