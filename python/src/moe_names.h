// The names that Python gives to options of moe() and of stores of experts.
#pragma once

#include <memory>
#include <string_view>

#include "penstock/host/cache_policy.h"
#include "penstock/ops/moe.h"

namespace ps::python {

// These throw InvalidArgument naming the argument that each is for.
GateUpLayout layout_named(std::string_view name);
MoeActivation activation_named(std::string_view name);
MoeKernel kernel_named(std::string_view name);
std::unique_ptr<CachePolicy> policy_named(std::string_view name);

}  // namespace ps::python
