// The same with cooperative groups: the block as a whole asks for a run of bytes, and the library
// shares it out among the threads. Nobody knows who copied what, so that the wait is for the whole
// block (wait_prior ends in a barrier), and so is the end of the reading, before a slot is asked
// for again.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>

#include <cuda/barrier>

#include "copy/support/f.cuh"
#include "copy/support/grids.cuh"
#include "copy/support/rung.h"
#include "support/phases.cuh"

namespace {

using namespace ladder::copy;
using ladder::Phase;
namespace cg = cooperative_groups;

constexpr unsigned threads = 256;

template <unsigned depth, bool traced = false>
__global__ void __launch_bounds__(threads)
    together(const float4* in, float4* out, std::size_t vectors, int rounds,
             ps::kit::TraceBuffer<traced> buffer) {
  __shared__ float4 slots[depth][threads];
  ladder::Phases<traced, depth> phases(buffer);
  const auto block = cg::this_thread_block();
  const std::size_t stride = std::size_t{gridDim.x} * threads;
  std::size_t first = std::size_t{blockIdx.x} * threads;
  std::size_t ahead = first;

  // After the last vector nothing is copied, but the (empty) group still counts.
  const auto ask = [&](unsigned slot) {
    const std::size_t left = ahead < vectors ? vectors - ahead : 0;
    const unsigned count = left < threads ? static_cast<unsigned>(left) : threads;
    phases.ask(slot);
    cg::memcpy_async(block, slots[slot], in + (left > 0 ? ahead : 0),
                     cuda::aligned_size_t<16>(count * sizeof(float4)));
    ahead += stride;
  };
  for (unsigned slot = 0; slot + 1 < depth; ++slot) ask(slot);

  unsigned slot = 0;
  for (; first < vectors; first += stride) {
    ask(slot == 0 ? depth - 1 : slot - 1);
    cg::wait_prior<depth - 1>(block);
    phases.landed(slot);
    if (first + threadIdx.x < vectors) {
      __stcs(out + first + threadIdx.x,
             phases.end(Phase::compute, f(slots[slot][threadIdx.x], rounds)));
      phases.end(Phase::store);
    }
    block.sync();  // all threads have read: the slot may be filled again
    slot = slot + 1 == depth ? 0 : slot + 1;
  }
  cg::wait(block);
}

constexpr GridOptions grid{.grid = Grid::resident, .threads = threads, .piece = threads};

std::vector<Kernel> kernels() {
  return {over_vectors("depth 2", together<2>, grid), over_vectors("depth 4", together<4>, grid)};
}

std::vector<Traced> traced() {
  return {{.name = "cooperative", .kernel = [](const auto& buffer) {
             return over_vectors("traced", together<4, true>, grid, {}, {buffer});
           }}};
}

const ladder::Instructions machine{.holds = {"LDGSTS", "BAR"}};
PENSTOCK_COPY_RUNG("cooperative",
                   "cooperative_groups::memcpy_async: a block copies and waits as a whole.",
                   machine, kernels, traced);

}  // namespace
