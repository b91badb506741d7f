// What a rung of the ladder of moe() includes. A rung is one of the kernels of ps::moe(), which lie
// in the library, and the same kernels with their trace switched on:
//
//   PENSTOCK_MOE_RUNG("name", "One sentence.", ps::MoeKernel::best, run_traced);
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>
#include <vector>

#include "moe/support/layer.h"
#include "penstock/kit/trace.h"
#include "penstock/trace/kernel_trace.h"
#include "support/context.h"
#include "support/kernel_rung.h"

namespace ladder::moe {

// Enqueues the traced products. Throws what a launch throws.
using RunTraced = void (*)(const ps::detail::MoeWork& work, ps::Place place, cudaStream_t stream,
                           const ps::kit::TraceBuffer<true>& up,
                           const ps::kit::TraceBuffer<true>& down);

struct Products {
  std::string_view name;
  ps::MoeKernel kernel = ps::MoeKernel::best;
  RunTraced traced = nullptr;
};

// Those of every rung linked into this program, in no order.
const std::vector<Products>& all_products();

struct ProductTraces {
  ps::KernelTrace up, down;
};

// Runs the layer with traced products. Call layer.run() before. Synchronises.
ProductTraces run_traced(const Layer& layer, const Products& products);

// The number of steps along K of a tile of each product.
unsigned up_steps(const Shape& shape);
unsigned down_steps(const Shape& shape);

// The rung's row: the layer of the context's shape, checked, then timed. Where traces are asked
// for, it writes the pages moe_NAME.
std::vector<ladder::Row> measure(ladder::Context& context, const Products& products);

namespace detail {
struct Registration {
  explicit Registration(const Products& products);
};
}  // namespace detail

}  // namespace ladder::moe

#define PENSTOCK_MOE_RUNG(title, text, kernel, traced)                              \
  static constexpr ladder::moe::Products products{title, kernel, traced};           \
  static const ladder::moe::detail::Registration registered_products(products);     \
  static std::vector<ladder::Row> measure_rung(ladder::Context& context) {          \
    return ladder::moe::measure(context, products);                                 \
  }                                                                                 \
  static const ladder::Instructions machine{}; /* the kernels lie in the library */ \
  PENSTOCK_KERNEL_RUNG(title, text, machine, measure_rung)
