// The epilogue of a matrix product: rounds to the element type and stores through a tensor map,
// which leaves out elements outside the matrix.
#pragma once

#include "penstock/kit/gemm/parts.cuh"
#include "penstock/kit/piece_store.cuh"

namespace ps::kit {

// Stores a consumer's tile 64 columns at a time, through two buffers in shared memory: one is
// written while the other is stored.
template <class Config>
class GemmStore {
 public:
  using Element = typename Config::Element;
  using Pieces = PieceStore<Element, 2>;
  using Shared = typename Pieces::Shared;
  using Arguments = TensorMap;  // of C, with boxes of `box_rows` x 64
  static constexpr unsigned box_rows = Pieces::rows;

  __device__ static void prefetch_arguments(const Arguments& c) { prefetch(c); }

  __device__ GemmStore(Shared& shared, const Arguments& c) : pieces_(shared), c_(c) {}

  template <unsigned count>
  __device__ void store(const float (&d)[count], const GemmTile& tile, unsigned row,
                        unsigned column) {
#pragma unroll
    for (unsigned p = 0; p < count / 32; ++p) {
      pieces_.put([&](unsigned i, auto& to) { pack_pairs<Element>(d + 32 * p + 8 * i, to); },
                  [&](const void* piece) {
                    tensor_store(c_, piece, evict_first(), tile.row + row + pieces_.first_row(),
                                 tile.column + column + 64 * p);
                  });
    }
  }

  __device__ void finish() { pieces_.finish(); }

 private:
  Pieces pieces_;
  const TensorMap& c_;
};

}  // namespace ps::kit
