// Overlap inside a warpgroup: the scores of the next block and the sums of the last one are in
// flight together, and the softmax begins as soon as the scores are there, while the tensor cores
// still add the values. A warpgroup then needs no other to fill the tensor cores' time.
#include "attention/support/roles.cuh"

namespace {

using namespace ladder::attention;

// Consumer: one warpgroup
template <class Element>
struct Consume {
  __device__ __forceinline__ void operator()(RolesShared<Element>& shared, const Problem& p,
                                             Sums& o, Softmax& softmax, unsigned blocks,
                                             unsigned number) const {
    kit::Consumer k(shared.k_ring), v(shared.v_ring);
    const float scale = p.scale * log2_e;
    Probabilities probabilities;
    begin<Element>(shared, p, k, softmax, probabilities, blocks, number);
    for (unsigned block = 1; block < blocks; ++block) {
      Scores s;
      start_scores<Element>(s, shared.q[number], shared.k[k.wait()]);
      start_values<Element>(o, probabilities, shared.v[v.wait()]);  // of the block before
      kit::wgmma_wait<1>(s);                                        // the values are in flight
      release(k);
      if (block + 1 == blocks) mask_beyond(s, p.rows - block * block_keys);
      float shrink[2];
      const bool grew = softmax.next(s, scale, shrink);
      kit::wgmma_wait<0>(o);
      release(v);
      pack_probabilities<Element>(probabilities, s);
      if (grew) scale_rows(o, shrink);
    }
    start_values<Element>(o, probabilities, shared.v[v.wait()]);
    kit::wgmma_wait<0>(o);
  }
};

std::vector<Variant> variants() {
  return {roles_variant<__nv_bfloat16, Consume<__nv_bfloat16>>(""),
          roles_variant<__half, Consume<__half>>("")};
}

const ladder::Instructions machine{.holds = {"HGMMA.64x128x16", "WARPGROUP.DEPBAR"},
                                   .lacks = {"BAR.ARV"}};
PENSTOCK_ATTENTION_RUNG(
    "overlap", "Each warpgroup computes its softmax while both of its products are in flight.",
    machine, variants);

}  // namespace
