// The epilogue of a matrix product: rounds to the element type and stores through a tensor map,
// which leaves out elements outside the matrix.
#pragma once

#include "penstock/kit/gemm/parts.cuh"
#include "penstock/kit/piece_store.cuh"

namespace ps::kit {

// Stores a consumer's tile 64 columns at a time, through two buffers in shared memory: one is
// written while the other is stored. If the columns are no multiple of 64, the last two pieces
// overlap, and columns that they have in common are stored twice, with the same bits.
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
    constexpr unsigned step = Pieces::columns / 2;  // accumulators of a piece
    static_assert(count >= step && count % 8 == 0, "64 columns or more, a multiple of 16");
#pragma unroll
    for (unsigned p = 0; p < (count + step - 1) / step; ++p) {
      const unsigned first = min(step * p, count - step);  // the last piece may overlap another
      pieces_.put([&](unsigned i, auto& to) { pack_pairs<Element>(d + first + 8 * i, to); },
                  [&](const void* piece) {
                    tensor_store(c_, piece, evict_first(), tile.row + row + pieces_.first_row(),
                                 tile.column + column + 2 * first);
                  });
    }
  }

  __device__ void finish() { pieces_.finish(); }

 private:
  Pieces pieces_;
  const TensorMap& c_;
};

}  // namespace ps::kit
