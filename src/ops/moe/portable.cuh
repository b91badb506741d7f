// The portable products of moe(), for compute capability 8.0 and later: cp.async loads tiles into
// shared memory three steps ahead, warps multiply them, and the results are stored from registers.
// The blocks stay and take work items from the plan's tables until there are none.
#pragma once

#include <cstdint>

#include "ops/moe/gpu.h"
#include "ops/moe/portable_loads.cuh"
#include "ops/moe/portable_products.cuh"
#include "ops/moe/portable_store.cuh"
#include "penstock/kit/launch.cuh"

namespace ps::detail::moe_portable {

// The steps in shared memory, as the products see them.
template <class Config>
class Pipe {
 public:
  __device__ Pipe(Shared<Config>& shared, Loads<Config>& loads) : shared_(shared), loads_(loads) {
    for (unsigned step = 0; step + 1 < depth; ++step) loads_.next(step);
  }

  // Waits for the current step: this thread's copies, and those of all others, who have loaded all
  // they need of the step before.
  __device__ void wait() const {
    kit::cp_async_wait<depth - 2>();
    __syncthreads();
  }
  // Loads a step into the slot of the one before the current.
  __device__ void load_ahead() { loads_.next((step_ + depth - 1) % depth); }
  __device__ void advance() { step_ = (step_ + 1) % depth; }

  __device__ const unsigned char* a() const { return shared_.a[step_]; }
  __device__ const unsigned char* b() const { return shared_.b[step_]; }

 private:
  Shared<Config>& shared_;
  Loads<Config>& loads_;
  unsigned step_ = 0;
};

template <class Config>
__global__ void __launch_bounds__(threads, 1)
    moe_product(const Operands<typename Config::Element> operands) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<Shared<Config>*>(memory);
  __shared__ Queue::Shared words;
  kit::wait_for_previous();
  kit::let_next_start();

  const unsigned steps = (operands.k + Config::tile_k - 1) / Config::tile_k;
  Queue queue(words, operands.items);
  Loads<Config> loads(shared, queue, operands, steps);
  Pipe<Config> pipe(shared, loads);
  Product<Config> product;
  for (unsigned number = 0;; ++number) {
    const MoeItem item = queue.item(number);
    if (item.rows == 0) break;
    if (item.rows > 2 * group_rows) {
      product.template multiply<4>(pipe, steps);
    } else if (item.rows > group_rows) {
      product.template multiply<2>(pipe, steps);
    } else {
      product.template multiply<1>(pipe, steps);
    }
    store<Config>(product, operands, item);
  }
}

template <class Config>
void run(const Operands<typename Config::Element>& operands, cudaStream_t stream) {
  kit::LaunchOptions options{
      .block = threads, .shared_bytes = sizeof(Shared<Config>), .overlaps_previous = true};
  options.grid = kit::resident_clusters(moe_product<Config>, options);
  kit::launch(moe_product<Config>, options, stream, operands);
}

template <class Element, bool up>
void run_major(const Operands<Element>& operands, cudaStream_t stream) {
  operands.b_column == 1 ? run<Config<Element, up, kit::Major::k>>(operands, stream)
                         : run<Config<Element, up, kit::Major::mn>>(operands, stream);
}

// Both products.
template <class Element>
void run_products(const MoeWork& work, cudaStream_t stream) {
  const MoeSpace space(work);
  const auto elements = [](const void* of) { return static_cast<const Element*>(of); };
  const auto d = static_cast<unsigned>(work.hidden), n = static_cast<unsigned>(work.width);
  const Operands<Element> up{.a = elements(work.x),
                             .a_row = work.x_row,
                             .source = space.source,
                             .choices = kit::Divisor(static_cast<unsigned>(work.choices)),
                             .b = elements(work.held.gate_up),
                             .b_slot = work.held.gate_up_slot,
                             .b_row = work.held.gate_up_row,
                             .b_column = work.held.gate_up_column,
                             .bias = elements(work.held.gate_up_bias),
                             .bias_slot = work.held.gate_up_bias_slot,
                             .out = static_cast<Element*>(space.h),
                             .k = d,
                             .columns = n,
                             .interleaved = work.layout == GateUpLayout::interleaved,
                             .gate = work.gate,
                             .items = {space.up_items, space.counters, space.counters + 2}};
  const Operands<Element> down{.a = up.out,
                               .a_row = work.width,
                               .source = nullptr,
                               .choices = up.choices,
                               .b = elements(work.held.down),
                               .b_slot = work.held.down_slot,
                               .b_row = work.held.down_row,
                               .b_column = work.held.down_column,
                               .bias = elements(work.held.down_bias),
                               .bias_slot = work.held.down_bias_slot,
                               .out = static_cast<Element*>(space.y),
                               .k = n,
                               .columns = d,
                               .interleaved = false,
                               .gate = {},
                               .items = {space.down_items, space.counters + 1, space.counters + 3}};
  run_major<Element, true>(up, stream);
  run_major<Element, false>(down, stream);
}

// One source file each.
void products_bf16(const MoeWork& work, cudaStream_t stream);
void products_f16(const MoeWork& work, cudaStream_t stream);
void products_f32(const MoeWork& work, cudaStream_t stream);

}  // namespace ps::detail::moe_portable
