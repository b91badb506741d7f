// Without tensor cores, and without overlap: a block loads 64 keys and values through its
// registers into shared memory, waits for them, computes with them, and loads the next ones. The
// scores are never stored in global memory.
#include "attention/support/scalar_variant.cuh"

namespace {

using namespace ladder::attention;

template <class Element>
using Shared = ScalarShared<Element, 1>;

// 64 rows of a head, with zeros beyond the last.
template <class Element>
__device__ void load(unsigned char* tile, const void* matrix, const Problem& p, unsigned head,
                     unsigned first) {
  for_each_piece<Element, 64, ScalarTile<Element>::threads>(
      tile, matrix, p, head, first, [](unsigned char* to, const Element* from, bool inside) {
        *reinterpret_cast<uint4*>(to) = inside ? *reinterpret_cast<const uint4*>(from) : uint4{};
      });
}

template <class Element>
__global__ void __launch_bounds__(ScalarTile<Element>::threads, 2)
    scalar(const __grid_constant__ Problem p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<Shared<Element>*>(memory);
  const unsigned head = blockIdx.y, query = blockIdx.x * ScalarTile<Element>::queries;
  ScalarTile<Element> tile(shared.own, p);
  load<Element>(shared.own.q, p.q, p, head, query);
  for (unsigned key = 0; key < p.rows; key += ScalarTile<Element>::keys) {
    load<Element>(shared.k[0], p.k, p, head, key);
    load<Element>(shared.v[0], p.v, p, head, key);
    __syncthreads();  // all have written what all read
    tile.add(shared.k[0], shared.v[0], key);
    __syncthreads();  // all have read what will be overwritten
  }
  tile.store(head, query);
}

template <class Element>
Variant variant() {
  return scalar_variant<Element, scalar<Element>, Shared<Element>>("");
}

std::vector<Variant> variants() { return {variant<__nv_bfloat16>(), variant<__half>()}; }

const ladder::Instructions machine{.holds = {"FFMA", "LDG.128", "STS.128", "LDS.128"},
                                   .lacks = {"HMMA", "LDGSTS"}};
PENSTOCK_ATTENTION_RUNG(
    "scalar", "Scalar multiply-adds; a block loads, waits and computes, one after the other.",
    machine, variants);

}  // namespace
