// A loader warp keeps loads of keys and values in flight, and two consumers of 64 queries each use
// every tile that it loads. There is no barrier of all threads in the loop.
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
    for (unsigned block = 0; block < blocks; ++block) {
      Scores s;
      start_scores<Element>(s, shared.q[number], shared.k[k.wait()]);
      kit::wgmma_wait<0>(s);
      release(k);

      if (block + 1 == blocks) mask_beyond(s, p.rows - block * block_keys);
      take_softmax(softmax, s, o, scale, block == 0);
      Probabilities probabilities;
      pack_probabilities<Element>(probabilities, s);

      start_values<Element>(o, probabilities, shared.v[v.wait()]);
      kit::wgmma_wait<0>(o);
      release(v);
    }
  }
};

std::vector<Variant> variants() {
  return {roles_variant<__nv_bfloat16, Consume<__nv_bfloat16>>(""),
          roles_variant<__half, Consume<__half>>("")};
}

const ladder::Instructions machine{
    .holds = {"HGMMA.64x128x16", "USETMAXREG", "SYNCS.PHASECHK", "UTMALDG.3D"}};
PENSTOCK_ATTENTION_RUNG("roles", "A loader warp fills a ring of tiles for two consumer warpgroups.",
                        machine, variants);

}  // namespace
