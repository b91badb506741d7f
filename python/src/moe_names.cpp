#include "moe_names.h"

#include <fmt/format.h>

#include "penstock/base/error.h"

namespace ps::python {

GateUpLayout layout_named(std::string_view name) {
  if (name == "concatenated") return GateUpLayout::concatenated;
  if (name == "interleaved") return GateUpLayout::interleaved;
  throw InvalidArgument("layout", "'concatenated' or 'interleaved'", fmt::format("'{}'", name));
}

MoeActivation activation_named(std::string_view name) {
  if (name == "swiglu") return MoeActivation::swiglu;
  if (name == "geglu") return MoeActivation::geglu;
  if (name == "geglu_tanh") return MoeActivation::geglu_tanh;
  if (name == "clamped_swiglu") return MoeActivation::clamped_swiglu;
  throw InvalidArgument("activation", "'swiglu', 'geglu', 'geglu_tanh' or 'clamped_swiglu'",
                        fmt::format("'{}'", name));
}

MoeKernel kernel_named(std::string_view name) {
  if (name == "best") return MoeKernel::best;
  if (name == "sequential") return MoeKernel::sequential;
  if (name == "large") return MoeKernel::large;
  if (name == "decode") return MoeKernel::decode;
  if (name == "portable") return MoeKernel::portable;
  throw InvalidArgument("kernel", "'best', 'sequential', 'large', 'decode' or 'portable'",
                        fmt::format("'{}'", name));
}

std::unique_ptr<CachePolicy> policy_named(std::string_view name) {
  if (name == "frequency") return frequency_policy();
  if (name == "lru") return lru_policy();
  throw InvalidArgument("policy", "'frequency' or 'lru'", fmt::format("'{}'", name));
}

}  // namespace ps::python
