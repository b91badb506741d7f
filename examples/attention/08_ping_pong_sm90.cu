// Turns: while one consumer has the tensor cores, the other computes its softmax. A turn is the
// product of the last probabilities and that of the next scores, one after the other; named
// barriers pass it on.
#include "attention/support/roles.cuh"

namespace {

using namespace ladder::attention;

// The turns of the consumers, the same number for each. The first consumer begins.
class Turns {
 public:
  __device__ Turns(unsigned number, unsigned turns) : number_(number), left_(turns) {
    if (number_ == consumers - 1 && left_ > 0) arrive_for_next();
  }
  __device__ void take() const { kit::named_barrier_wait(1 + number_, threads); }
  __device__ void pass() {
    --left_;
    if (number_ < consumers - 1 || left_ > 0) arrive_for_next();  // nobody waits for the last one
  }

 private:
  static constexpr unsigned threads = 2 * kit::warpgroup_threads;  // one waits, one arrives

  __device__ void arrive_for_next() const {
    kit::named_barrier_arrive(1 + (number_ + 1) % consumers, threads);
  }

  unsigned number_, left_;
};

// Consumer: one warpgroup
template <class Element>
struct Consume {
  __device__ __forceinline__ void operator()(RolesShared<Element>& shared, const Problem& p,
                                             Sums& o, Softmax& softmax, unsigned blocks,
                                             unsigned number) const {
    kit::Consumer k(shared.k_ring), v(shared.v_ring);
    const float scale = p.scale * log2_e;
    Turns turns(number, blocks - 1);
    Probabilities probabilities;
    begin<Element>(shared, p, k, softmax, probabilities, blocks, number);
    for (unsigned block = 1; block < blocks; ++block) {
      Scores s;
      const unsigned key_slot = k.wait(), value_slot = v.wait();
      turns.take();
      start_values<Element>(o, probabilities, shared.v[value_slot]);  // of the block before
      start_scores<Element>(s, shared.q[number], shared.k[key_slot]);
      kit::wgmma_wait<0>(s);
      kit::wgmma_wait<0>(o);
      turns.pass();
      release(k);
      release(v);

      if (block + 1 == blocks) mask_beyond(s, p.rows - block * block_keys);
      float shrink[2];
      if (softmax.next(s, scale, shrink)) scale_rows(o, shrink);
      pack_probabilities<Element>(probabilities, s);
    }
    start_values<Element>(o, probabilities, shared.v[v.wait()]);
    kit::wgmma_wait<0>(o);
  }
};

std::vector<Variant> variants() {
  return {roles_variant<__nv_bfloat16, Consume<__nv_bfloat16>>(""),
          roles_variant<__half, Consume<__half>>("")};
}

const ladder::Instructions machine{.holds = {"HGMMA.64x128x16", "BAR.ARV", "BAR.SYNC"}};
PENSTOCK_ATTENTION_RUNG("ping-pong",
                        "One consumer uses the tensor cores while the other computes its softmax.",
                        machine, variants);

}  // namespace
