// The next keys and values are copied while the current ones are used: cp.async brings them past
// the registers into one of several slots ("stages") of shared memory. With two slots one block of
// keys is in flight, with four slots three.
#include "attention/support/scalar_variant.cuh"

namespace {

using namespace ladder::attention;

// Asks for 64 rows of a head.
template <class Element>
__device__ void ask(unsigned char* tile, const void* matrix, const Problem& p, unsigned head,
                    unsigned first) {
  copy_async<Element, 64, ScalarTile<Element>::threads>(tile, matrix, p, head, first);
}

template <class Element, unsigned stages>
__global__ void __launch_bounds__(ScalarTile<Element>::threads, stages <= 2 ? 2 : 1)
    double_buffered(const __grid_constant__ Problem p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<ScalarShared<Element, stages>*>(memory);
  constexpr unsigned keys = ScalarTile<Element>::keys;
  const unsigned head = blockIdx.y, query = blockIdx.x * ScalarTile<Element>::queries;
  const unsigned blocks = (p.rows + keys - 1) / keys;

  // A group of copies is closed for every block, there or not: counting groups counts blocks.
  const auto ask_block = [&](unsigned block) {
    if (block < blocks) {
      ask<Element>(shared.k[block % stages], p.k, p, head, block * keys);
      ask<Element>(shared.v[block % stages], p.v, p, head, block * keys);
    }
    kit::cp_async_commit();
  };
  ask<Element>(shared.own.q, p.q, p, head, query);  // in the group of the first block
  for (unsigned block = 0; block + 1 < stages; ++block) ask_block(block);

  ScalarTile<Element> tile(shared.own, p);
  for (unsigned block = 0; block < blocks; ++block) {
    kit::cp_async_wait<stages - 2>();  // this thread's copies have landed,
    __syncthreads();                   // all others' too, and nobody reads the last block
    ask_block(block + stages - 1);     // into the slot of the last block
    tile.add(shared.k[block % stages], shared.v[block % stages], block * keys);
  }
  kit::cp_async_wait<0>();
  tile.store(head, query);
}

template <class Element, unsigned stages>
Variant variant() {
  return scalar_variant<Element, double_buffered<Element, stages>, ScalarShared<Element, stages>>(
      of_stages(stages));
}

std::vector<Variant> variants() {
  return {variant<__nv_bfloat16, 2>(), variant<__nv_bfloat16, 3>(), variant<__nv_bfloat16, 4>(),
          variant<__half, 2>()};
}

const ladder::Instructions machine{.holds = {"LDGSTS.128", "LDGDEPBAR", "DEPBAR"},
                                   .lacks = {"HMMA", "LDG"}};
PENSTOCK_ATTENTION_RUNG("double-buffered",
                        "cp.async copies the next block of keys while the current one is used.",
                        machine, variants);

}  // namespace
