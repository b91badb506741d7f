// The portable gemm, for compute capability 8.0 and later and matrices of any size and alignment.
// A block multiplies 128 x 128 elements of out: cp.async loads tiles of a and b into shared memory
// two steps ahead, and every warp multiplies 64 x 32 with mma.sync.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "ops/gemm/gpu.h"
#include "penstock/kit/cp_async.cuh"
#include "penstock/kit/launch.cuh"
#include "penstock/kit/scheduler.h"
#include "penstock/kit/tile.h"
#include "penstock/kit/warp.cuh"
#include "penstock/kit/warp_product.cuh"

namespace ps::detail {
namespace {

// Configuration
constexpr unsigned tile = 128, tile_k = 32;
constexpr unsigned depth = 3;
constexpr unsigned threads = 256;  // warps in 2 rows and 4 columns
constexpr unsigned warp_rows = 64, warp_columns = 32;
constexpr unsigned panel = 8;  // tile rows whose blocks run together

template <class Element>
using SharedMatrix =
    kit::SharedTile<Element, tile, tile_k, kit::Major::k, kit::Swizzle::b64>;  // of a or b

// Shared storage
template <class Element>
struct Shared {
  alignas(512) unsigned char a[depth][SharedMatrix<Element>::bytes];
  alignas(512) unsigned char b[depth][SharedMatrix<Element>::bytes];
};

template <class Element>
struct Matrix {
  Element* data;
  std::int64_t stride;  // of rows, in elements
  unsigned rows, columns;

  __device__ Element* at(unsigned row, unsigned column) const {
    return data + static_cast<std::int64_t>(row) * stride + column;
  }
};

template <class Element>
struct Operands {
  Matrix<const Element> a, b;
  Matrix<Element> out;
};

// One thread's part of loading a tile: 16 bytes of some rows, with zeros outside the matrix. Rows
// that are not aligned to 16 bytes are loaded element by element.
template <class Element, bool aligned>
class TileLoads {
 public:
  __device__ TileLoads(const Matrix<const Element>& matrix, unsigned row)
      : matrix_(matrix), row_(row + threadIdx.x / chunks), column_(threadIdx.x % chunks * 8) {}

  __device__ void operator()(unsigned char* to, unsigned k) const {
#pragma unroll
    for (unsigned turn = 0; turn < tile / rows; ++turn) {
      const unsigned inside = threadIdx.x / chunks + turn * rows;
      load(to + SharedMatrix<Element>::offset(inside, column_), row_ + turn * rows, k + column_);
    }
  }

 private:
  static constexpr unsigned chunks = tile_k / 8;      // of 16 bytes, per row
  static constexpr unsigned rows = threads / chunks;  // that the block loads at a time

  __device__ void load(unsigned char* to, unsigned row, unsigned column) const {
    const unsigned left =
        row < matrix_.rows && column < matrix_.columns ? min(matrix_.columns - column, 8u) : 0;
    if constexpr (aligned) {
      const Element* from = left > 0 ? matrix_.at(row, column) : matrix_.data;
      kit::cp_async<16>(to, from, left * sizeof(Element));
    } else {
      alignas(16) std::uint16_t values[8];
#pragma unroll
      for (unsigned i = 0; i < 8; ++i) {
        values[i] = i < left ? reinterpret_cast<const std::uint16_t*>(matrix_.at(row, column))[i]
                             : std::uint16_t{0};
      }
      *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(values);
    }
  }

  Matrix<const Element> matrix_;
  unsigned row_, column_;
};

// A warp multiplies 64 x 32 elements.
template <class Element>
using Product = kit::WarpProduct<Element, SharedMatrix<Element>, SharedMatrix<Element>,
                                 warp_rows / 16, 16, warp_columns / 8>;

// Stores a warp's sums; `row` and `column` are those of its first element.
template <class Element>
__device__ void store(const Product<Element>& product, const Matrix<Element>& out, unsigned row,
                      unsigned column) {
  const unsigned lane = kit::lane_index();
#pragma unroll
  for (unsigned i = 0; i < warp_rows / 16; ++i) {
#pragma unroll
    for (unsigned j = 0; j < warp_columns / 8; ++j) {
#pragma unroll
      for (unsigned e = 0; e < 4; ++e) {
        const unsigned r = row + 16 * i + lane / 4 + e / 2 * 8;
        const unsigned c = column + 8 * j + lane % 4 * 2 + e % 2;
        if (r < out.rows && c < out.columns) *out.at(r, c) = Element(product.sums[i][j][e]);
      }
    }
  }
}

template <class Element, bool aligned>
__global__ void __launch_bounds__(threads)
    portable_gemm(const Operands<Element> operands, const kit::GroupedOrder order) {
  extern __shared__ __align__(512) unsigned char memory[];
  auto& shared = *reinterpret_cast<Shared<Element>*>(memory);
  const kit::Tile place = order.tile(blockIdx.x);
  const unsigned row = place.row * tile, column = place.column * tile;
  const unsigned steps = operands.a.columns / tile_k + (operands.a.columns % tile_k != 0);
  const TileLoads<Element, aligned> load_a(operands.a, row), load_b(operands.b, column);

  // A group of copies is closed at every step, with or without copies, so that the number of groups
  // tells which step has arrived.
  const auto load_step = [&](unsigned step) {
    if (step < steps) {
      load_a(shared.a[step % depth], step * tile_k);
      load_b(shared.b[step % depth], step * tile_k);
    }
    kit::cp_async_commit();
  };
  for (unsigned step = 0; step + 1 < depth; ++step) load_step(step);

  const unsigned warp_row = kit::warp_index() / 4 * warp_rows;
  const unsigned warp_column = kit::warp_index() % 4 * warp_columns;
  Product<Element> product(warp_row, warp_column);
  for (unsigned step = 0; step < steps; ++step) {
    kit::cp_async_wait<depth - 2>();  // this thread's part of the step,
    __syncthreads();                  // and that of all others, who are done with the last step
    load_step(step + depth - 1);
#pragma unroll
    for (unsigned slice = 0; slice < tile_k / 16; ++slice) {
      typename Product<Element>::Fragments fragments;
      product.load(fragments, shared.a[step % depth], shared.b[step % depth], slice);
      product.multiply(fragments);
    }
  }
  store(product, operands.out, row + warp_row, column + warp_column);
}

template <class Element, bool aligned>
void run(const Operands<Element>& operands, cudaStream_t stream) {
  const auto tiles = [](unsigned extent) { return (std::uint64_t{extent} + tile - 1) / tile; };
  const kit::GroupedOrder order(tiles(operands.out.rows), tiles(operands.out.columns), panel);
  kit::launch(portable_gemm<Element, aligned>,
              {.grid = order.count(), .block = threads, .shared_bytes = sizeof(Shared<Element>)},
              stream, operands, order);
}

template <class Element>
void run(const GemmWork& work, cudaStream_t stream) {
  const auto m = static_cast<unsigned>(work.m), n = static_cast<unsigned>(work.n),
             k = static_cast<unsigned>(work.k);
  const Operands<Element> operands{{static_cast<const Element*>(work.a), work.a_row, m, k},
                                   {static_cast<const Element*>(work.b), work.b_row, n, k},
                                   {static_cast<Element*>(work.out), work.out_row, m, n}};
  const auto aligned = [](const Matrix<const Element>& matrix) {
    return reinterpret_cast<std::uintptr_t>(matrix.data) % 16 == 0 && matrix.stride % 8 == 0;
  };
  if (aligned(operands.a) && aligned(operands.b)) return run<Element, true>(operands, stream);
  run<Element, false>(operands, stream);
}

}  // namespace

void gemm_portable(const GemmWork& work, cudaStream_t stream) {
  work.type == DType::f16 ? run<__half>(work, stream) : run<__nv_bfloat16>(work, stream);
}

}  // namespace ps::detail
