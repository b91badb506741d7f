// Tensor cores, the portable way: cp.async as before, ldmatrix hands the tiles to registers, and a
// warp multiplies them with mma.sync. The accumulators of the scores are, rounded, the operand of
// the product with the values: probabilities stay in registers. Runs from compute capability 8.0
// on.
#include "attention/support/accumulators.cuh"
#include "attention/support/launch.cuh"
#include "penstock/kit/matrix.cuh"
#include "penstock/kit/mma.cuh"

namespace {

using namespace ladder::attention;

// Configuration
constexpr unsigned queries = 128, keys = 32;
constexpr unsigned stages = 3;
constexpr unsigned threads = 128;              // 4 warps
constexpr unsigned groups = queries / 16 / 4;  // of 16 queries, of each warp
template <class Element>
using TileQ = RowTile<Element, queries>;
template <class Element>
using TileK = RowTile<Element, keys>;  // of K or V

// Shared storage
template <class Element>
struct Shared {
  alignas(1024) unsigned char q[TileQ<Element>::bytes];
  alignas(1024) unsigned char k[stages][TileK<Element>::bytes];
  alignas(1024) unsigned char v[stages][TileK<Element>::bytes];
};

// s = Q K^T for the warp's queries
template <class Element>
__device__ void multiply_keys(float (&s)[groups][keys / 8][4], const unsigned char* q,
                              const unsigned char* k) {
  const unsigned lane = kit::lane_index(), warp = kit::warp_index();
#pragma unroll
  for (unsigned column = 0; column < dim; column += 16) {
    std::uint32_t a[groups][4];
#pragma unroll
    for (unsigned g = 0; g < groups; ++g) {
      const unsigned row = (warp * groups + g) * 16 + lane % 16;
      kit::load_matrices(a[g], q + TileQ<Element>::offset(row, column + lane / 16 * 8));
    }
#pragma unroll
    for (unsigned j = 0; j < keys / 16; ++j) {
      std::uint32_t b[4];
      kit::load_matrices(b, k + TileK<Element>::offset(16 * j + lane / 16 * 8 + lane % 8,
                                                       column + lane / 8 % 2 * 8));
#pragma unroll
      for (unsigned g = 0; g < groups; ++g) {
        kit::mma<Element>(s[g][2 * j], a[g], {b[0], b[1]});
        kit::mma<Element>(s[g][2 * j + 1], a[g], {b[2], b[3]});
      }
    }
  }
}

// o += P V
template <class Element>
__device__ void multiply_values(float (&o)[groups][dim / 8][4],
                                const std::uint32_t (&p)[groups][keys / 16][4],
                                const unsigned char* v) {
  const unsigned lane = kit::lane_index();
#pragma unroll
  for (unsigned slice = 0; slice < keys / 16; ++slice) {
#pragma unroll
    for (unsigned j = 0; j < dim / 16; ++j) {
      std::uint32_t b[4];  // transposed: V has a key's columns side by side
      kit::load_matrices<true>(
          b, v + TileK<Element>::offset(16 * slice + lane % 16, 16 * j + lane / 16 * 8));
#pragma unroll
      for (unsigned g = 0; g < groups; ++g) {
        kit::mma<Element>(o[g][2 * j], p[g][slice], {b[0], b[1]});
        kit::mma<Element>(o[g][2 * j + 1], p[g][slice], {b[2], b[3]});
      }
    }
  }
}

template <class Element>
__global__ void __launch_bounds__(threads, 2) mma_sync(const __grid_constant__ Problem p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<Shared<Element>*>(memory);
  const unsigned head = blockIdx.y, query = blockIdx.x * queries;
  const unsigned blocks = (p.rows + keys - 1) / keys;

  const auto ask_block = [&](unsigned block) {
    if (block < blocks) {
      copy_async<Element, keys, threads>(shared.k[block % stages], p.k, p, head, block * keys);
      copy_async<Element, keys, threads>(shared.v[block % stages], p.v, p, head, block * keys);
    }
    kit::cp_async_commit();
  };
  copy_async<Element, queries, threads>(shared.q, p.q, p, head, query);
  for (unsigned block = 0; block + 1 < stages; ++block) ask_block(block);

  const float scale = p.scale * log2_e;
  Softmax softmax[groups];
  float o[groups][dim / 8][4] = {};
  for (unsigned block = 0; block < blocks; ++block) {
    kit::cp_async_wait<stages - 2>();
    __syncthreads();
    ask_block(block + stages - 1);
    float s[groups][keys / 8][4] = {};
    multiply_keys<Element>(s, shared.q, shared.k[block % stages]);
    std::uint32_t probabilities[groups][keys / 16][4];
#pragma unroll
    for (unsigned g = 0; g < groups; ++g) {
      if (block + 1 == blocks) mask_beyond(flat(s[g]), p.rows - block * keys);
      take_softmax(softmax[g], flat(s[g]), flat(o[g]), scale, block == 0);
      pack_probabilities<Element>(probabilities[g], flat(s[g]));
    }
    multiply_values<Element>(o, probabilities, shared.v[block % stages]);
  }
  kit::cp_async_wait<0>();
#pragma unroll
  for (unsigned g = 0; g < groups; ++g) {
    divide(flat(o[g]), softmax[g]);
    store_rows<Element>(p, flat(o[g]), head, query + (kit::warp_index() * groups + g) * 16);
  }
}

template <class Element>
void run(const Problem& p, const ps::Stream& stream) {
  kit::launch(
      mma_sync<Element>,
      {.grid = grid_of(p, queries), .block = threads, .shared_bytes = sizeof(Shared<Element>)},
      ps::cuda_stream(stream), p);
}

template <class Element>
Variant variant() {
  return {.label = label_of<Element>(""), .type = type_of<Element>, .run = run<Element>, .use = [] {
            return ladder::kernel_use(mma_sync<Element>, threads, sizeof(Shared<Element>));
          }};
}

std::vector<Variant> variants() { return {variant<__nv_bfloat16>(), variant<__half>()}; }

const ladder::Instructions machine{.holds = {"HMMA.16816", "LDSM.MT88", "LDGSTS.128"},
                                   .lacks = {"STS"}};
PENSTOCK_ATTENTION_RUNG("mma-sync",
                        "mma.sync computes on tensor cores; probabilities stay in registers.",
                        machine, variants);

}  // namespace
