// Causal tiles have different numbers of keys, so a fixed assignment leaves some blocks without
// work while others still compute. Here a free block takes the next tile from a counter, long tiles
// come first, and heads are processed in groups whose keys and values stay in the L2 cache.
#include "attention/support/persistent.cuh"

namespace {

using namespace ladder::attention;

enum class Heads { all, grouped };  // that are computed together

template <class Element, Taking taking, Heads heads>
void run(const Problem& p, const ps::Stream& stream) {
  const unsigned group = heads == Heads::all ? p.heads : heads_in_group(p.heads, p.rows);
  run_persistent<Element, true, taking>(p, stream, group);
}

template <class Element, Taking taking, Heads heads>
Variant variant(const std::string& label) {
  return {.label = label_of<Element>(label),
          .type = type_of<Element>,
          .causal = true,
          .run = run<Element, taking, heads>,
          .use = persistent_use<Element, true, taking>};
}

std::vector<Variant> variants() {
  return {variant<__nv_bfloat16, Taking::stride, Heads::grouped>("fixed stride, grouped heads"),
          variant<__nv_bfloat16, Taking::counter, Heads::all>("counter, all heads"),
          variant<__nv_bfloat16, Taking::counter, Heads::grouped>("counter, grouped heads"),
          variant<__half, Taking::counter, Heads::grouped>("counter, grouped heads")};
}

const ladder::Instructions machine{.holds = {"HGMMA.64x128x16", "UTMASTG.3D", "ATOMG"}};
PENSTOCK_ATTENTION_RUNG(
    "causal-order", "Free blocks take the next tile from a counter, tiles with many keys first.",
    machine, variants);

}  // namespace
