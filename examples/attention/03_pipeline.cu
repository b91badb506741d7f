// The same with cuda::pipeline, which names the steps and counts the stages: acquire one, copy into
// it, commit; wait for the oldest, compute, release it. A pipeline of the block has two barriers
// per stage in shared memory, at which every thread arrives.
#include <cooperative_groups.h>

#include <cuda/pipeline>

#include "attention/support/scalar_variant.cuh"

namespace {

using namespace ladder::attention;

using Pipeline = cuda::pipeline<cuda::thread_scope_block>;

// Asks for 64 rows of a head; zeros beyond the last are written at once.
template <class Element>
__device__ void ask(unsigned char* tile, const void* matrix, const Problem& p, unsigned head,
                    unsigned first, Pipeline& pipeline) {
  for_each_piece<Element, 64, ScalarTile<Element>::threads>(
      tile, matrix, p, head, first,
      [&pipeline](unsigned char* to, const Element* from, bool inside) {
        if (inside) {
          cuda::memcpy_async(reinterpret_cast<uint4*>(to), reinterpret_cast<const uint4*>(from),
                             cuda::aligned_size_t<16>(16), pipeline);
        } else {
          *reinterpret_cast<uint4*>(to) = uint4{};
        }
      });
}

template <class Element, unsigned stages>
__global__ void __launch_bounds__(ScalarTile<Element>::threads, stages <= 2 ? 2 : 1)
    pipelined(const __grid_constant__ Problem p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<ScalarShared<Element, stages>*>(memory);
// make_pipeline() initialises it, whatever its constructor says.
#pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, stages> state;
  Pipeline pipeline = cuda::make_pipeline(cooperative_groups::this_thread_block(), &state);
  constexpr unsigned keys = ScalarTile<Element>::keys;
  const unsigned head = blockIdx.y, query = blockIdx.x * ScalarTile<Element>::queries;
  const unsigned blocks = (p.rows + keys - 1) / keys;

  const auto ask_block = [&](unsigned block) {
    if (block >= blocks) return;
    pipeline.producer_acquire();
    if (block == 0) ask<Element>(shared.own.q, p.q, p, head, query, pipeline);
    ask<Element>(shared.k[block % stages], p.k, p, head, block * keys, pipeline);
    ask<Element>(shared.v[block % stages], p.v, p, head, block * keys, pipeline);
    pipeline.producer_commit();
  };
  for (unsigned block = 0; block + 1 < stages; ++block) ask_block(block);

  ScalarTile<Element> tile(shared.own, p);
  for (unsigned block = 0; block < blocks; ++block) {
    ask_block(block + stages - 1);
    pipeline.consumer_wait();
    tile.add(shared.k[block % stages], shared.v[block % stages], block * keys);
    pipeline.consumer_release();
  }
  tile.store(head, query);
}

template <class Element, unsigned stages>
Variant variant() {
  return scalar_variant<Element, pipelined<Element, stages>, ScalarShared<Element, stages>>(
      of_stages(stages));
}

std::vector<Variant> variants() {
  return {variant<__nv_bfloat16, 2>(), variant<__nv_bfloat16, 3>(), variant<__half, 2>()};
}

const ladder::Instructions machine{.holds = {"LDGSTS.128", "SYNCS"}, .lacks = {"HMMA"}};
PENSTOCK_ATTENTION_RUNG("pipeline",
                        "Asynchronous copies of the next keys, written with cuda::pipeline.",
                        machine, variants);

}  // namespace
