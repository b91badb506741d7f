// One thread asks for whole tiles, and the copy engine (TMA) brings them: no thread computes
// addresses, and rows beyond the last are loaded as zeros. The copies complete on a barrier in
// shared memory.
#include "attention/support/scalar_variant.cuh"
#include "penstock/kit/fence.cuh"

namespace {

using namespace ladder::attention;

template <class Element, unsigned stages>
struct Shared : ScalarShared<Element, stages> {
  kit::Barrier full[stages];
};

template <class Element, unsigned stages>
__global__ void __launch_bounds__(ScalarTile<Element>::threads, stages <= 2 ? 2 : 1)
    tma(const __grid_constant__ Maps maps, const __grid_constant__ Problem p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<Shared<Element, stages>*>(memory);
  constexpr unsigned keys = ScalarTile<Element>::keys;
  constexpr unsigned tile_bytes = ScalarTile<Element>::Tile::bytes;
  const unsigned head = blockIdx.y, query = blockIdx.x * ScalarTile<Element>::queries;
  const unsigned blocks = (p.rows + keys - 1) / keys;
  if (threadIdx.x == 0) {
    for (kit::Barrier& full : shared.full) full.init(1);
    kit::fence_barrier_init();
  }
  __syncthreads();

  const auto ask_block = [&](unsigned block) {
    if (threadIdx.x != 0 || block >= blocks) return;
    kit::Barrier& full = shared.full[block % stages];
    full.arrive_expect((block == 0 ? 3 : 2) * tile_bytes);
    if (block == 0) {
      load_tile<Element, 64>(shared.own.q, maps.q, full, kit::evict_first(), head, query);
    }
    load_tile<Element, 64>(shared.k[block % stages], maps.k, full, kit::evict_last(), head,
                           block * keys);
    load_tile<Element, 64>(shared.v[block % stages], maps.v, full, kit::evict_last(), head,
                           block * keys);
  };
  for (unsigned block = 0; block + 1 < stages; ++block) ask_block(block);

  ScalarTile<Element> tile(shared.own, p);
  for (unsigned block = 0; block < blocks; ++block) {
    ask_block(block + stages - 1);  // into the slot of the last block
    shared.full[block % stages].wait(block / stages % 2);
    tile.add(shared.k[block % stages], shared.v[block % stages], block * keys);
    __syncthreads();  // nobody reads the slot that is filled next
  }
  tile.store(head, query);
}

template <class Element, unsigned stages>
Variant variant() {
  return scalar_variant<Element, tma<Element, stages>, Shared<Element, stages>>(of_stages(stages));
}

std::vector<Variant> variants() {
  return {variant<__nv_bfloat16, 2>(), variant<__nv_bfloat16, 3>(), variant<__nv_bfloat16, 4>(),
          variant<__half, 2>()};
}

const ladder::Instructions machine{.holds = {"UTMALDG.3D", "SYNCS.PHASECHK"},
                                   .lacks = {"LDGSTS", "HMMA"}};
PENSTOCK_ATTENTION_RUNG("tma",
                        "One thread requests whole tiles of keys and values, which TMA copies.",
                        machine, variants);

}  // namespace
