// What the rungs with roles share: a block of threads computes 128 queries of one head, 64 in each
// of two consumers, and a loader fills a ring of keys and a ring of values with two slots each. The
// rungs differ in what a consumer does.
#pragma once

#include "attention/support/launch.cuh"
#include "attention/support/order.h"
#include "attention/support/products.cuh"
#include "penstock/kit/ring.h"
#include "penstock/kit/roles.cuh"

namespace ladder::attention {

constexpr unsigned consumers = 2, stages = 2;
static_assert(tile_queries == consumers * group_queries);
constexpr unsigned role_threads = (1 + consumers) * kit::warpgroup_threads;
// Registers per thread. The launch gives 168 to each; the loader needs few, and a consumer needs
// 160 for scores, sums and probabilities alone.
constexpr unsigned loader_registers = 40, consumer_registers = 232;

template <class Element>
struct RolesShared {
  alignas(1024) unsigned char q[consumers][TileQ<Element>::bytes];
  alignas(1024) unsigned char k[stages][TileK<Element>::bytes];
  alignas(1024) unsigned char v[stages][TileV<Element>::bytes];
  kit::Barrier q_full;
  kit::Ring<kit::Barrier, stages> k_ring, v_ring;
};

// Loader: one thread
template <class Element>
__device__ void load_all(RolesShared<Element>& shared, const Maps& maps, unsigned head,
                         unsigned query, unsigned blocks) {
  shared.q_full.arrive_expect(consumers * TileQ<Element>::bytes);
  for (unsigned i = 0; i < consumers; ++i) {
    load_tile<Element, group_queries>(shared.q[i], maps.q, shared.q_full, kit::evict_first(), head,
                                      query + i * group_queries);
  }
  kit::Producer k(shared.k_ring), v(shared.v_ring);
  for (unsigned block = 0; block < blocks; ++block) {
    const unsigned key = block * block_keys;
    unsigned slot = k.acquire(TileK<Element>::bytes);
    load_tile<Element, block_keys>(shared.k[slot], maps.k, k.full(slot), kit::evict_last(), head,
                                   key);
    slot = v.acquire(TileV<Element>::bytes);
    load_tile<Element, block_keys>(shared.v[slot], maps.v, v.full(slot), kit::evict_last(), head,
                                   key);
  }
}

// One thread of a consumer releases the slot for all of them: they waited for the product together.
template <class Ring>
__device__ void release(Ring& ring) {
  if (threadIdx.x % kit::warpgroup_threads == 0) {
    ring.release();
  } else {
    ring.skip_release();
  }
}

// Computes the probabilities of the first block, before a loop whose iterations compute the scores
// of one block and add the values of the block before it.
template <class Element>
__device__ __forceinline__ void begin(RolesShared<Element>& shared, const Problem& p,
                                      kit::Consumer<kit::Barrier, stages>& k, Softmax& softmax,
                                      Probabilities& probabilities, unsigned blocks,
                                      unsigned number) {
  Scores s;
  start_scores<Element>(s, shared.q[number], shared.k[k.wait()]);
  kit::wgmma_wait<0>(s);
  release(k);
  if (blocks == 1) mask_beyond(s, p.rows);
  softmax.begin(s, p.scale * log2_e);
  pack_probabilities<Element>(probabilities, s);
}

// `Consume` is the rung's part: consume(shared, p, o, softmax, blocks, number) computes the sums
// `o` of the consumer `number`.
template <class Element, class Consume>
__global__ void __launch_bounds__(role_threads, 1)
    roles_kernel(const __grid_constant__ Maps maps, const __grid_constant__ Problem p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<RolesShared<Element>*>(memory);
  const unsigned head = blockIdx.y, query = blockIdx.x * tile_queries;
  const unsigned blocks = (p.rows + block_keys - 1) / block_keys;
  if (threadIdx.x == 0) {
    shared.q_full.init(1);
    shared.k_ring.init(1, consumers);
    shared.v_ring.init(1, consumers);
    kit::fence_barrier_init();
  }
  __syncthreads();

  const unsigned group = kit::warpgroup_index();
  if (group == 0) {
    kit::give_registers<loader_registers>();
    if (kit::warp_index() == 0 && kit::elect()) load_all(shared, maps, head, query, blocks);
  } else {
    kit::take_registers<consumer_registers>();
    Softmax softmax;
    Sums o = {};
    shared.q_full.wait(0);
    Consume()(shared, p, o, softmax, blocks, group - 1);
    divide(o, softmax);
    store_rows<Element>(p, o, head, query + (group - 1) * group_queries + warp_row());
  }
}

template <class Element, class Consume>
void run_roles(const Problem& p, const ps::Stream& stream) {
  kit::launch(roles_kernel<Element, Consume>,
              {.grid = grid_of(p, tile_queries),
               .block = role_threads,
               .shared_bytes = sizeof(RolesShared<Element>)},
              ps::cuda_stream(stream), maps_of<Element>(p, group_queries, block_keys), p);
}

template <class Element, class Consume>
Variant roles_variant(const std::string& label) {
  return {.label = label_of<Element>(label),
          .type = type_of<Element>,
          .run = run_roles<Element, Consume>,
          .use = [] {
            return ladder::kernel_use(roles_kernel<Element, Consume>, role_threads,
                                      sizeof(RolesShared<Element>));
          }};
}

}  // namespace ladder::attention
