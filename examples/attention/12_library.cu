// ps::attention itself, the operator that users call, for comparison with the rungs. Its kernels
// are in the library, not in this file.
#include <string>

#include "attention/support/rung.h"
#include "penstock/ops/attention.h"

namespace {

using namespace ladder::attention;

// (heads, rows, 128) as sequences of one head each.
template <ps::DType type>
void run(const Problem& p, const ps::Stream& stream) {
  const auto view = [&](const void* data) {
    return ps::TensorView(const_cast<void*>(data), type, {p.heads, p.rows, 1, dim},
                          stream.device().place());
  };
  ps::attention({.q = view(p.q),
                 .k = view(p.k),
                 .v = view(p.v),
                 .out = view(p.out),
                 .causal = p.causal,
                 .scale = p.scale,
                 .workspace = p.workspace},
                stream);
}

template <ps::DType type>
Variant variant(const std::string& label, bool causal) {
  return {.label = label, .type = type, .causal = causal, .run = run<type>};
}

std::vector<Variant> variants() {
  return {variant<ps::DType::bf16>("bf16", false), variant<ps::DType::f16>("f16", false),
          variant<ps::DType::bf16>("causal, bf16", true),
          variant<ps::DType::f16>("causal, f16", true)};
}

const ladder::Instructions machine{};
PENSTOCK_ATTENTION_RUNG("library",
                        "The library's own operator, timed in interleaved runs with every rung.",
                        machine, variants);

}  // namespace
