// Tensor maps: neighbouring targets share rows, and a box of rows brings each of them once. A block
// takes some targets and a panel of columns, has the span of rows that the targets lie in brought
// as boxes, and blends out of that window. What the window is too short for waits for the next one,
// so that targets in any order come out right, if slowly. The price: rows in the span come along
// whether a target wants them or not, those behind a short episode's end included.
// Rows of whole 16 bytes; others go through the rung of the warps that search.
#include "penstock/base/view.h"
#include "penstock/host/cuda.h"
#include "penstock/kit/barrier.cuh"
#include "penstock/kit/fence.cuh"
#include "penstock/kit/launch.cuh"
#include "penstock/kit/scheduler.h"
#include "penstock/kit/tensor_map.h"
#include "penstock/kit/tma.cuh"
#include "penstock/kit/warp.cuh"
#include "resample/support/rung.h"
#include "resample/support/sample.cuh"
#include "support/kernel_use.cuh"

namespace {

using namespace ladder::resample;
using namespace ps::kit;

// Configuration.
constexpr unsigned threads = 128;
constexpr unsigned tile = 16;             // targets of a block: one a lane of every warp
constexpr unsigned most_row_bytes = 512;  // of a box: 256 elements of bf16, which is its limit
constexpr unsigned box_rows = 8;
constexpr unsigned window_bytes = 20 * 1024, most_window_rows = 256;
constexpr unsigned most_panels = 65535;  // that a grid has along y
constexpr std::size_t most_bytes = std::size_t{most_panels} * most_row_bytes;  // of a whole row
static_assert(tile <= warp_threads);

// A window is `window_rows` rows of a panel, whose rows have so many vectors.
template <class Element>
__global__ void __launch_bounds__(threads)
    tensor(const __grid_constant__ TensorMap values, Work work, unsigned window_rows,
           Divisor panel_vectors) {
  // Shared storage.
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ Barrier landed;
  __shared__ Sample<Element> found[tile];
  const auto* const window = reinterpret_cast<const uint4*>(memory);

  // Setup: a thread finds a target.
  const unsigned begin = blockIdx.x * tile, all = work.all_targets();
  const unsigned count = tile < all - begin ? tile : all - begin;
  if (threadIdx.x == 0) {
    prefetch(values);
    landed.init(1);
    fence_barrier_init();
  }
  if (threadIdx.x < count) found[threadIdx.x] = find<Element>(work, begin + threadIdx.x);
  __syncthreads();

  const unsigned pitch = panel_vectors.value(), box_bytes = box_rows * pitch * vector_bytes;
  const unsigned vectors = work.columns / vector_elements<Element>;
  const unsigned first_vector = blockIdx.y * pitch;
  const unsigned width = pitch < vectors - first_vector ? pitch : vectors - first_vector;
  uint4* const to = static_cast<uint4*>(work.out) + std::size_t{begin} * vectors + first_vector;

  // Every warp has all targets before it, one a lane, and so comes to the same windows.
  const unsigned lane = lane_index();
  bool waits = lane < count;
  const Sample<Element> mine = found[waits ? lane : 0];
  const unsigned end_of_mine = mine.row + (mine.blends() ? 2 : 1);
  for (unsigned parity = 0; __any_sync(0xffffffffu, waits); parity ^= 1) {
    const unsigned low = __reduce_min_sync(0xffffffffu, waits ? mine.row : ~0U);
    const bool inside = waits && end_of_mine - low <= window_rows;
    const unsigned high = __reduce_max_sync(0xffffffffu, inside ? end_of_mine : 0);
    const unsigned served = __ballot_sync(0xffffffffu, inside);

    // Copy.
    if (threadIdx.x == 0) {
      const unsigned boxes = (high - low + box_rows - 1) / box_rows;
      landed.arrive_expect(boxes * box_bytes);  // of whole boxes, also at the edges
      for (unsigned box = 0; box < boxes; ++box) {
        tensor_load(memory + box * box_bytes, values, landed, evict_normal(), low + box * box_rows,
                    first_vector * vector_elements<Element>);
      }
    }
    landed.wait(parity);

    // Compute.
    for (unsigned i = threadIdx.x; i < count * pitch; i += threads) {
      const unsigned target = panel_vectors.divide(i), v = i - target * pitch;
      if ((served >> target & 1) == 0 || v >= width) continue;
      const Sample<Element> sample = found[target];
      const unsigned at = (sample.row - low) * pitch + v;
      const uint4 x = window[at], y = sample.blends() ? window[at + pitch] : x;
      __stcs(to + std::size_t{target} * vectors + v, blended_vector<Element>(x, y, sample.weight));
    }
    waits = waits && !inside;
    __syncthreads();  // everyone has read the window
  }
}

// Launch.
unsigned window_rows_of(unsigned pitch_bytes) {
  const unsigned fit = window_bytes / pitch_bytes / box_rows * box_rows;
  return fit < most_window_rows ? fit : most_window_rows;
}

template <class Element>
void run(const Work& work, const ps::Stream& stream) {
  if (!why_left(work, most_bytes).empty()) return by_warps(work, stream);
  constexpr unsigned most_columns = most_row_bytes / sizeof(Element);
  const unsigned box_columns = work.columns < most_columns ? work.columns : most_columns;
  const unsigned panels = (work.columns + box_columns - 1) / box_columns;
  const ps::TensorView view(const_cast<void*>(work.values), work.type,
                            {work.all_samples(), work.columns},
                            {ps::Memory::device, ladder::current_device()});
  const TensorMap map =
      encode({.tensor = view, .box = {box_rows, box_columns}, .l2_promotion = L2Promotion::b256});
  const unsigned pitch = box_columns / vector_elements<Element>;
  const unsigned window_rows = window_rows_of(pitch * vector_bytes);
  launch(tensor<Element>,
         {.grid = dim3((work.all_targets() + tile - 1) / tile, panels),
          .block = threads,
          .shared_bytes = std::size_t{window_rows} * pitch * vector_bytes},
         ps::cuda_stream(stream), map, work, window_rows, Divisor(pitch));
}

template <class Element>
ladder::KernelUse use() {
  return ladder::kernel_use(tensor<Element>, threads, window_bytes);
}

std::vector<Kernel> kernels() {
  return {{.label = "boxes of 16 targets",
           .launch = {run<__nv_bfloat16>, run<float>},
           .use = {use<__nv_bfloat16>, use<float>},
           .hopper = true,
           .most_row_bytes = most_bytes}};
}

const ladder::Instructions machine{.holds = {"UTMALDG.2D", "REDUX", "SYNCS", "LDS.128", "STG.128"},
                                   .lacks = {"LDG.128", "LDGSTS", "UBLKCP"}};
PENSTOCK_RESAMPLE_RUNG("tensor",
                       "TMA loads the rows between which several targets lie, each row once.",
                       machine, kernels);

}  // namespace
