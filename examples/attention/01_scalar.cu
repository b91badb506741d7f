// Without tensor cores, and without overlap: a block loads 64 keys and values through its
// registers into shared memory, waits for them, computes with them, and loads the next ones. The
// scores are never stored in global memory.
#include "attention/support/launch.cuh"
#include "attention/support/scalar.cuh"

namespace {

using namespace ladder::attention;

template <class Element>
struct Shared {
  using Tile = ScalarTile<Element>;
  typename Tile::Shared own;
  alignas(1024) unsigned char k[Tile::Tile::bytes];
  alignas(1024) unsigned char v[Tile::Tile::bytes];
};

// 64 rows of a head, with zeros behind the last.
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
    load<Element>(shared.k, p.k, p, head, key);
    load<Element>(shared.v, p.v, p, head, key);
    __syncthreads();  // all have written what all read
    tile.add(shared.k, shared.v, key);
    __syncthreads();  // all have read what will be overwritten
  }
  tile.store(head, query);
}

template <class Element>
void run(const Problem& p, const ps::Stream& stream) {
  kit::launch(scalar<Element>,
              {.grid = grid_of(p, ScalarTile<Element>::queries),
               .block = ScalarTile<Element>::threads,
               .shared_bytes = sizeof(Shared<Element>)},
              ps::cuda_stream(stream), p);
}

template <class Element>
Variant variant() {
  return {.label = label_of<Element>(""), .type = type_of<Element>, .run = run<Element>, .use = [] {
            return ladder::kernel_use(scalar<Element>, ScalarTile<Element>::threads,
                                      sizeof(Shared<Element>));
          }};
}

std::vector<Variant> variants() { return {variant<__nv_bfloat16>(), variant<__half>()}; }

const ladder::Instructions machine{.holds = {"FFMA", "LDG.128", "STS.128", "LDS.128"},
                                   .lacks = {"HMMA", "LDGSTS"}};
PENSTOCK_ATTENTION_RUNG("scalar", "One multiply-add at a time: load, wait, compute.", machine,
                        variants);

}  // namespace
