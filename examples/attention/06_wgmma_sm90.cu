// wgmma: a warpgroup multiplies 64 queries by 128 keys straight from shared memory. One after the
// other: load keys and values, multiply, softmax, multiply. Only the other blocks of the
// multiprocessor fill the waits.
#include "attention/support/launch.cuh"
#include "attention/support/products.cuh"

namespace {

using namespace ladder::attention;

template <class Element>
struct Shared {
  alignas(1024) unsigned char q[TileQ<Element>::bytes];
  alignas(1024) unsigned char k[TileK<Element>::bytes];
  alignas(1024) unsigned char v[TileV<Element>::bytes];
  kit::Barrier full;
};

template <class Element>
__global__ void __launch_bounds__(kit::warpgroup_threads, 2)
    wgmma(const __grid_constant__ Maps maps, const __grid_constant__ Problem p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<Shared<Element>*>(memory);
  const unsigned head = blockIdx.y, query = blockIdx.x * group_queries;
  const unsigned blocks = (p.rows + block_keys - 1) / block_keys;
  if (threadIdx.x == 0) {
    shared.full.init(1);
    kit::fence_barrier_init();
  }
  __syncthreads();

  const float scale = p.scale * log2_e;
  Softmax softmax;
  Sums o = {};
  for (unsigned block = 0; block < blocks; ++block) {
    if (threadIdx.x == 0) {
      shared.full.arrive_expect((block == 0 ? TileQ<Element>::bytes : 0) + TileK<Element>::bytes +
                                TileV<Element>::bytes);
      if (block == 0) {
        load_tile<Element, group_queries>(shared.q, maps.q, shared.full, kit::evict_first(), head,
                                          query);
      }
      const unsigned key = block * block_keys;
      load_tile<Element, block_keys>(shared.k, maps.k, shared.full, kit::evict_last(), head, key);
      load_tile<Element, block_keys>(shared.v, maps.v, shared.full, kit::evict_last(), head, key);
    }
    shared.full.wait(block % 2);

    Scores s;
    start_scores<Element>(s, shared.q, shared.k);
    kit::wgmma_wait<0>(s);

    if (block + 1 == blocks) mask_beyond(s, p.rows - block * block_keys);
    take_softmax(softmax, s, o, scale, block == 0);
    Probabilities probabilities;
    pack_probabilities<Element>(probabilities, s);

    start_values<Element>(o, probabilities, shared.v);
    kit::wgmma_wait<0>(o);
    __syncthreads();  // nobody reads what is overwritten next
  }
  divide(o, softmax);
  store_rows<Element>(p, o, head, query + warp_row());
}

template <class Element>
void run(const Problem& p, const ps::Stream& stream) {
  kit::launch(wgmma<Element>,
              {.grid = grid_of(p, group_queries),
               .block = kit::warpgroup_threads,
               .shared_bytes = sizeof(Shared<Element>)},
              ps::cuda_stream(stream), maps_of<Element>(p, group_queries, block_keys), p);
}

template <class Element>
Variant variant() {
  return {.label = label_of<Element>(""), .type = type_of<Element>, .run = run<Element>, .use = [] {
            return ladder::kernel_use(wgmma<Element>, kit::warpgroup_threads,
                                      sizeof(Shared<Element>));
          }};
}

std::vector<Variant> variants() { return {variant<__nv_bfloat16>(), variant<__half>()}; }

const ladder::Instructions machine{.holds = {"HGMMA.64x128x16", "UTMALDG.3D", "WARPGROUP.DEPBAR"},
                                   .lacks = {"LDSM", "LDGSTS"}};
PENSTOCK_ATTENTION_RUNG("wgmma",
                        "wgmma: a warpgroup multiplies operands that are in shared memory.",
                        machine, variants);

}  // namespace
