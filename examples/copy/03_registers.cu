// Pipelining by hand, with plain loads: before a thread computes on one element it asks for those
// it will want later, and keeps them in registers. A load only stops a thread that uses its result,
// so the loads ahead travel while it computes. What it costs: registers, and a loop that must be
// unrolled for the compiler to name them.
#include "copy/support/f.cuh"
#include "copy/support/grids.cuh"
#include "copy/support/rung.h"
#include "support/phases.cuh"

namespace {

using namespace ladder::copy;
using ladder::Phase;

constexpr unsigned threads = 256;

template <unsigned ahead, bool traced = false>
__global__ void __launch_bounds__(threads)
    loads_ahead(Work work, ps::kit::TraceBuffer<traced> buffer) {
  ladder::Phases<traced, ahead> phases(buffer);
  const std::size_t stride = std::size_t{gridDim.x} * threads;
  std::size_t i = std::size_t{blockIdx.x} * threads + threadIdx.x;

  float next[ahead];
#pragma unroll
  for (unsigned a = 0; a < ahead; ++a) {
    phases.ask(a);
    if (i + a * stride < work.count) next[a] = work.in[i + a * stride];
  }
  while (i < work.count) {
#pragma unroll
    for (unsigned a = 0; a < ahead; ++a, i += stride) {
      const float x = next[a];
      if (i < work.count) phases.landed(a, x);
      phases.ask(a);
      if (i + ahead * stride < work.count) next[a] = work.in[i + ahead * stride];
      if (i < work.count) {
        work.out[i] = phases.end(Phase::compute, f(x, work.rounds));
        phases.end(Phase::store);
      }
    }
  }
}

__global__ void __launch_bounds__(threads) no_load_ahead(Work work) {
  const std::size_t stride = std::size_t{gridDim.x} * threads;
#pragma unroll 1
  for (std::size_t i = std::size_t{blockIdx.x} * threads + threadIdx.x; i < work.count;
       i += stride) {
    work.out[i] = f(work.in[i], work.rounds);
  }
}

constexpr GridOptions grid{.grid = Grid::resident, .threads = threads, .piece = threads};

std::vector<Kernel> kernels() {
  return {over_elements("load, compute, store", no_load_ahead, grid),
          over_elements("1 load ahead", loads_ahead<1>, grid),
          over_elements("2 loads ahead", loads_ahead<2>, grid),
          over_elements("4 loads ahead", loads_ahead<4>, grid),
          over_elements("8 loads ahead", loads_ahead<8>, grid)};
}

std::vector<Traced> traced() {
  return {{.name = "registers", .kernel = [](const auto& buffer) {
             return over_elements("traced", loads_ahead<4, true>, grid, {buffer});
           }}};
}

const ladder::Instructions machine{.holds = {"LDG"}, .lacks = {"LDG.128", "LDGSTS"}};
PENSTOCK_COPY_RUNG("registers",
                   "The next elements are loaded into registers while the thread computes.",
                   machine, kernels, traced);

}  // namespace
