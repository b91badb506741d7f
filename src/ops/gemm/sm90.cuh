// Matrix products on Hopper: the kit's engine with the shapes of choice.h.
//
// All shapes without a split give the same bits: each element of out is summed by the same
// instructions in the same order, four products of 16 columns of K per step of 64. Shapes only
// decide which block computes an element, and when. A split adds up partial sums in the order of
// K, so shapes with the same split give the same bits, too.
#pragma once

#include <type_traits>
#include <utility>

#include "ops/gemm/choice.h"
#include "ops/gemm/gpu.h"
#include "penstock/kit/gemm/launch.cuh"
#include "penstock/kit/gemm/row_loader.cuh"

namespace ps::detail {

template <class Element, std::size_t number>
struct GemmSm90 {
  static constexpr GemmShape shape = gemm_shapes[number];
  using Config = kit::GemmConfig<Element, shape.tile_m, shape.tile_n, gemm_slots(shape),
                                 shape.cluster, gemm_consumers(shape), shape.split>;
  using Loader =
      std::conditional_t<shape.cp_async, kit::RowLoader<Config>, kit::TensorLoader<Config>>;
  // Only the one that is chosen is instantiated.
  template <template <class> class Schedule>
  using With =
      kit::Gemm<Config, kit::GemmStore<Config>, Loader, kit::GridOrder<Config>, Schedule<Config>>;
  static auto product() {
    if constexpr (shape.split > 1) {
      return std::type_identity<With<kit::Split>>();
    } else if constexpr (shape.ping_pong) {
      return std::type_identity<With<kit::PingPong>>();
    } else {
      return std::type_identity<With<kit::Cooperative>>();
    }
  }
  using Product = typename decltype(product())::type;

  static void run(const GemmWork& work, Place place, cudaStream_t stream) {
    // About 1024 rows of out, whose rows of a stay in the L2 cache.
    constexpr unsigned panel = 1024 / (shape.tile_m * shape.cluster) * shape.cluster;
    const auto matrix = [&](const void* data, std::int64_t rows, std::int64_t columns,
                            std::int64_t stride) {
      const std::int64_t extents[] = {rows, columns}, strides[] = {stride, 1};
      return TensorView(const_cast<void*>(data), work.type, extents, strides, place);
    };
    const auto operands = [&] {
      if constexpr (shape.cp_async) {
        const auto pitch = [](std::int64_t row) {
          return static_cast<std::uint64_t>(row) * sizeof(Element);
        };
        return typename Loader::Arguments{work.a,
                                          work.b,
                                          pitch(work.a_row),
                                          pitch(work.b_row),
                                          static_cast<unsigned>(work.n),
                                          static_cast<unsigned>(work.k / 8)};
      } else {
        return kit::gemm_operands<Config>(matrix(work.a, work.m, work.k, work.a_row),
                                          matrix(work.b, work.n, work.k, work.b_row));
      }
    };
    const kit::GridOrder<Config> order(work.m, work.n, panel);
    kit::launch_gemm<Product>(operands(), kit::gemm_steps<Config>(work.k),
                              kit::gemm_map(matrix(work.out, work.m, work.n, work.out_row),
                                            kit::GemmStore<Config>::box_rows),
                              order, kit::gemm_blocks<Product>(order.grid()), stream);
  }
};

template <class Element, std::size_t... numbers>
void run_gemm_sm90(const GemmWork& work, GemmKernel kernel, Place place, cudaStream_t stream,
                   std::index_sequence<numbers...>) {
  ((gemm_shapes[numbers].kernel == kernel ? GemmSm90<Element, numbers>::run(work, place, stream)
                                          : void()),
   ...);
}

template <class Element>
void run_gemm_sm90(const GemmWork& work, GemmKernel kernel, Place place, cudaStream_t stream) {
  run_gemm_sm90<Element>(work, kernel, place, stream,
                         std::make_index_sequence<gemm_shapes.size()>());
}

}  // namespace ps::detail
