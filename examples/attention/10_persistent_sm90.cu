// As many blocks as fit the GPU, each of which computes one tile after the other in a rotated loop:
// the first product of the next tile runs while the results of this one are stored. Setting up a
// block, loading its first queries and storing its results happen once per block, or are hidden.
#include "attention/support/persistent.cuh"

namespace {

using namespace ladder::attention;

// One head after the other.
template <class Element, bool causal>
void run(const Problem& p, const ps::Stream& stream) {
  run_persistent<Element, causal, Taking::stride>(p, stream, 1);
}

template <class Element, bool causal>
Variant variant() {
  return {.label = label_of<Element>(causal ? "causal" : ""),
          .type = type_of<Element>,
          .causal = causal,
          .run = run<Element, causal>,
          .use = persistent_use<Element, causal, Taking::stride>};
}

std::vector<Variant> variants() {
  return {variant<__nv_bfloat16, false>(), variant<__half, false>(),
          variant<__nv_bfloat16, true>()};
}

void run_traced(const Problem& p, const ps::Stream& stream, const kit::TraceBuffer<true>& buffer) {
  run_persistent<__nv_bfloat16, false, Taking::stride, true>(p, stream, 1, buffer);
}

Traced traced() {
  return {.name = "persistent",
          .roles = {"loads", "products 1", "softmax 1", "stores 1", "products 2", "softmax 2",
                    "stores 2"},
          .run = run_traced,
          .room = {.blocks = 1}};
}

const ladder::Instructions machine{.holds = {"HGMMA.64x128x16", "UTMASTG.3D", "STSM", "USETMAXREG"},
                                   .lacks = {"STG"}};
PENSTOCK_ATTENTION_RUNG("persistent",
                        "Persistent blocks start the next tile while they store the current one.",
                        machine, variants, traced);

}  // namespace
