// The same loads in two orders. Neighbouring threads on neighbouring floats: the 32 loads of a warp
// are one line of 128 bytes. Every thread on a row of its own: they are 32 lines, of which each
// access uses 4 bytes; the cache saves some of it, as the next accesses want the rest of the lines,
// until the warps of a multiprocessor together hold more lines than it has.
#include "copy/support/f.cuh"
#include "copy/support/grids.cuh"
#include "copy/support/rung.h"
#include "support/phases.cuh"

namespace {

using namespace ladder::copy;
using ladder::Phase;

constexpr unsigned threads = 256;
constexpr unsigned per_thread = 32;
constexpr unsigned tile = threads * per_thread;

// `step`: how far apart a thread's elements are; `lane`: how far apart neighbouring threads are.
template <unsigned step, unsigned lane, bool traced = false>
__global__ void __launch_bounds__(threads)
    in_order(Work work, ps::kit::TraceBuffer<traced> buffer) {
  ladder::Phases<traced> phases(buffer);
  const std::size_t first = std::size_t{blockIdx.x} * tile + threadIdx.x * lane;
#pragma unroll 1  // one load at a time: this rung is about addresses
  for (unsigned k = 0; k < per_thread; ++k) {
    const std::size_t i = first + k * step;
    if (i < work.count) {
      const float x = work.in[i];
      phases.end(Phase::load, x);
      work.out[i] = phases.end(Phase::compute, f(x, work.rounds));
      phases.end(Phase::store);
    }
  }
}

constexpr GridOptions grid{.threads = threads, .piece = tile};

std::vector<Kernel> kernels() {
  return {
      over_elements("uncoalesced: 32 adjacent elements per thread", in_order<1, per_thread>, grid),
      over_elements("coalesced: 32 adjacent elements per warp access", in_order<threads, 1>, grid)};
}

template <unsigned step, unsigned lane>
Traced trace_of(const char* name) {
  return {.name = name,
          .kernel =
              [](const auto& buffer) {
                return over_elements("traced", in_order<step, lane, true>, grid, {buffer});
              },
          .room = {.blocks = 32, .capacity = per_thread, .short_blocks = true}};
}
std::vector<Traced> traced() {
  return {trace_of<1, per_thread>("uncoalesced"), trace_of<threads, 1>("coalesced")};
}

const ladder::Instructions machine{.holds = {"LDG", "STG"}, .lacks = {"LDG.128", "STG.128"}};
PENSTOCK_COPY_RUNG("coalesced",
                   "A warp accesses 32 adjacent elements, or elements in 32 cache lines.", machine,
                   kernels, traced);

}  // namespace
