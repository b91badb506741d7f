// Tensor copies: one thread copies a box of the tensor that a TensorMap describes. Needs compute
// capability 9.0.
//
// Coordinates are the first element of the box, outermost dimension first, as in the view that the
// map was encoded from. The innermost coordinate is at a multiple of 16 bytes. Coordinates may lie
// outside the tensor; only those of loads may be negative. Breaking these rules is an illegal
// instruction.
//
// Loads fill the parts of the box outside the tensor, as TensorMapOptions::fill says, and complete
// the bytes of the whole box. Stores leave those parts out, but write whole 16-byte chunks of a
// row.
#pragma once

#include <cstdint>

#include "penstock/kit/address.cuh"
#include "penstock/kit/barrier.cuh"
#include "penstock/kit/bulk.cuh"
#include "penstock/kit/cache_hint.cuh"
#include "penstock/kit/tensor_map.h"

namespace ps::kit {
namespace detail {

// Coordinates in the copy engine's order, innermost first.
template <class... Coordinate>
struct Corner {
  static constexpr unsigned rank = sizeof...(Coordinate);
  static_assert(rank >= 1 && rank <= 5, "a tensor map has 1 to 5 dimensions");
  int at[5] = {};

  __device__ explicit Corner(Coordinate... coordinates) {
    const int given[] = {static_cast<int>(coordinates)...};
    for (unsigned i = 0; i < rank; ++i) at[i] = given[rank - 1 - i];
  }
};

}  // namespace detail

// One instruction in its five ranks. Operands: %0 shared memory, %1 map, %2 barrier, %3 hint,
// %4 to %8 coordinates, %9 blocks; an instruction names those it needs.
#define PENSTOCK_TENSOR_COPY(begin, middle, end, shared, map, barrier, hint, corner, blocks)       \
  do {                                                                                             \
    if constexpr ((corner).rank == 1) {                                                            \
      PENSTOCK_TENSOR_COPY_RANK(begin ".1d" middle "{%4}" end, shared, map, barrier, hint, corner, \
                                blocks);                                                           \
    } else if constexpr ((corner).rank == 2) {                                                     \
      PENSTOCK_TENSOR_COPY_RANK(begin ".2d" middle "{%4, %5}" end, shared, map, barrier, hint,     \
                                corner, blocks);                                                   \
    } else if constexpr ((corner).rank == 3) {                                                     \
      PENSTOCK_TENSOR_COPY_RANK(begin ".3d" middle "{%4, %5, %6}" end, shared, map, barrier, hint, \
                                corner, blocks);                                                   \
    } else if constexpr ((corner).rank == 4) {                                                     \
      PENSTOCK_TENSOR_COPY_RANK(begin ".4d" middle "{%4, %5, %6, %7}" end, shared, map, barrier,   \
                                hint, corner, blocks);                                             \
    } else {                                                                                       \
      PENSTOCK_TENSOR_COPY_RANK(begin ".5d" middle "{%4, %5, %6, %7, %8}" end, shared, map,        \
                                barrier, hint, corner, blocks);                                    \
    }                                                                                              \
  } while (0)
#define PENSTOCK_TENSOR_COPY_RANK(text, shared, map, barrier, hint, corner, blocks)                \
  asm volatile(text ::"r"(shared), "l"(map), "r"(barrier), "l"((hint).policy),                     \
               "r"((corner).at[0]), "r"((corner).at[1]), "r"((corner).at[2]), "r"((corner).at[3]), \
               "r"((corner).at[4]), "h"(blocks)                                                    \
               : "memory")

// Prefetches the map itself.
__device__ inline void prefetch(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Loads a box into shared memory, aligned to 128 bytes and to the swizzle's atom_alignment(). The
// bytes complete on `full`; announce them with arrive_expect().
template <class... Coordinate>
__device__ inline void tensor_load(void* shared, const TensorMap& map, Barrier& full,
                                   CacheHint hint, Coordinate... coordinates) {
  const detail::Corner<Coordinate...> corner(coordinates...);
  PENSTOCK_TENSOR_COPY("cp.async.bulk.tensor",
                       ".shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                       "[%0], [%1, ",
                       "], [%2], %3;", shared_address(shared), &map, full.address(), hint, corner,
                       std::uint16_t{0});
}

// Loads to the same offset of shared memory in every block of the cluster whose bit is set in
// `blocks`. The bytes complete on `full` in each of these blocks.
template <class... Coordinate>
__device__ inline void tensor_load_multicast(void* shared, const TensorMap& map, Barrier& full,
                                             std::uint16_t blocks, CacheHint hint,
                                             Coordinate... coordinates) {
  const detail::Corner<Coordinate...> corner(coordinates...);
  PENSTOCK_TENSOR_COPY("cp.async.bulk.tensor",
                       ".shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
                       ".L2::cache_hint [%0], [%1, ",
                       "], [%2], %9, %3;", shared_address(shared), &map, full.address(), hint,
                       corner, blocks);
}

// Stores a box from shared memory. Call fence_shared_to_async() first if ordinary stores wrote the
// data, and bulk_commit() and bulk_wait() or bulk_wait_read() afterwards.
template <class... Coordinate>
__device__ inline void tensor_store(const TensorMap& map, const void* shared, CacheHint hint,
                                    Coordinate... coordinates) {
  const detail::Corner<Coordinate...> corner(coordinates...);
  PENSTOCK_TENSOR_COPY("cp.async.bulk.tensor",
                       ".global.shared::cta.bulk_group.L2::cache_hint [%1, ", "], [%0], %3;",
                       shared_address(shared), &map, 0, hint, corner, std::uint16_t{0});
}

enum class Reduction { add, min, max };

// As tensor_store(), but combines the box with the values in global memory.
template <Reduction reduction, class... Coordinate>
__device__ inline void tensor_reduce(const TensorMap& map, const void* shared, CacheHint hint,
                                     Coordinate... coordinates) {
  const detail::Corner<Coordinate...> corner(coordinates...);
  const std::uint32_t from = shared_address(shared);
  if constexpr (reduction == Reduction::add) {
    PENSTOCK_TENSOR_COPY("cp.reduce.async.bulk.tensor",
                         ".global.shared::cta.add.tile.bulk_group.L2::cache_hint [%1, ",
                         "], [%0], %3;", from, &map, 0, hint, corner, std::uint16_t{0});
  } else if constexpr (reduction == Reduction::min) {
    PENSTOCK_TENSOR_COPY("cp.reduce.async.bulk.tensor",
                         ".global.shared::cta.min.tile.bulk_group.L2::cache_hint [%1, ",
                         "], [%0], %3;", from, &map, 0, hint, corner, std::uint16_t{0});
  } else {
    PENSTOCK_TENSOR_COPY("cp.reduce.async.bulk.tensor",
                         ".global.shared::cta.max.tile.bulk_group.L2::cache_hint [%1, ",
                         "], [%0], %3;", from, &map, 0, hint, corner, std::uint16_t{0});
  }
}

// Prefetches a box into the L2 cache.
template <class... Coordinate>
__device__ inline void tensor_prefetch(const TensorMap& map, CacheHint hint,
                                       Coordinate... coordinates) {
  const detail::Corner<Coordinate...> corner(coordinates...);
  PENSTOCK_TENSOR_COPY("cp.async.bulk.prefetch.tensor", ".L2.global.tile.L2::cache_hint [%1, ",
                       "], %3;", 0, &map, 0, hint, corner, std::uint16_t{0});
}

#undef PENSTOCK_TENSOR_COPY
#undef PENSTOCK_TENSOR_COPY_RANK

}  // namespace ps::kit
