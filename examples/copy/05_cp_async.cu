// cp.async: a thread asks for 16 bytes and they arrive in shared memory by themselves, past its
// registers. Copies are closed into groups, and a thread waits until all but its youngest groups
// have landed: with `depth` slots, depth - 1 groups travel while the oldest is computed on.
// Every thread reads what it asked for itself, so that its own wait is enough; where threads read
// each other's bytes a barrier must follow the wait.
#include "copy/support/f.cuh"
#include "copy/support/grids.cuh"
#include "copy/support/rung.h"
#include "penstock/kit/cp_async.cuh"
#include "support/phases.cuh"

namespace {

using namespace ladder::copy;
using ladder::Phase;
using namespace ps::kit;

constexpr unsigned threads = 256;

template <unsigned depth, bool traced = false>
__global__ void __launch_bounds__(threads)
    grouped(const float4* in, float4* out, std::size_t vectors, int rounds,
            TraceBuffer<traced> buffer) {
  __shared__ float4 slots[depth][threads];
  ladder::Phases<traced, depth> phases(buffer);
  const std::size_t stride = std::size_t{gridDim.x} * threads;
  std::size_t i = std::size_t{blockIdx.x} * threads + threadIdx.x;
  std::size_t ahead = i;  // what is asked for next

  // A group for every slot, empty or not, so that counting groups counts slots.
  const auto ask = [&](unsigned slot) {
    phases.ask(slot);
    if (ahead < vectors) cp_async<16>(&slots[slot][threadIdx.x], in + ahead);
    cp_async_commit();
    ahead += stride;
  };
  for (unsigned slot = 0; slot + 1 < depth; ++slot) ask(slot);

  unsigned slot = 0;
  for (; i < vectors; i += stride) {
    ask(slot == 0 ? depth - 1 : slot - 1);  // the slot that the previous iteration read
    cp_async_wait<depth - 1>();
    phases.landed(slot);
    __stcs(out + i, phases.end(Phase::compute, f(slots[slot][threadIdx.x], rounds)));
    phases.end(Phase::store);
    slot = slot + 1 == depth ? 0 : slot + 1;
  }
  cp_async_wait<0>();
}

constexpr GridOptions grid{.grid = Grid::resident, .threads = threads, .piece = threads};

template <unsigned depth>
Kernel make(std::vector<Intensity> at) {
  return over_vectors("depth " + std::to_string(depth), grouped<depth>, grid, std::move(at));
}

std::vector<Kernel> kernels() {
  constexpr auto copy_bound = Intensity::copy_bound, balanced = Intensity::balanced,
                 compute_bound = Intensity::compute_bound;
  return {make<1>({copy_bound, balanced}), make<2>({copy_bound, balanced}),
          make<3>({copy_bound, balanced}), make<4>({copy_bound, balanced, compute_bound}),
          make<6>({copy_bound, balanced}), make<8>({copy_bound, balanced})};
}

std::vector<Traced> traced() {
  return {{.name = "cp_async", .kernel = [](const auto& buffer) {
             return over_vectors("traced", grouped<4, true>, grid, {}, {buffer});
           }}};
}

const ladder::Instructions machine{.holds = {"LDGSTS.128", "LDGDEPBAR", "DEPBAR"},
                                   .lacks = {"LDG", "STS"}};
PENSTOCK_COPY_RUNG("cp.async",
                   "cp.async copies to shared memory, not through registers, in groups.", machine,
                   kernels, traced);

}  // namespace
