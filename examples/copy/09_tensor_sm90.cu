// Tensor maps: the host describes a matrix once, and then the copy engine moves boxes of it
// by their coordinates. It counts the addresses, fills what lies beyond the edges on loads and
// leaves it out on stores. The array is seen as a matrix; two shapes of box of the same size show
// what locality is worth: one is a run of memory, another 32 short pieces of it.
#include <string>

#include "copy/support/rung.h"
#include "copy/support/tile.cuh"
#include "penstock/base/view.h"
#include "penstock/kit/barrier.cuh"
#include "penstock/kit/fence.cuh"
#include "penstock/kit/launch.cuh"
#include "penstock/kit/tensor_map.h"
#include "penstock/kit/tma.cuh"
#include "support/kernel_use.cuh"
#include "support/phases.cuh"

namespace {

using namespace ladder::copy;
using ladder::Phase;
using namespace ps::kit;

// Configuration.
constexpr unsigned threads = 128;
constexpr unsigned depth = 4;

// How the array is cut: a matrix of `columns`, boxes of `box_rows` x `box_columns`.
struct Shape {
  unsigned columns, box_rows, box_columns;
  __host__ __device__ unsigned box_bytes() const { return box_rows * box_columns * sizeof(float); }
  __host__ __device__ unsigned across() const { return columns / box_columns; }
};

template <bool traced = false>
__global__ void __launch_bounds__(threads)
    tensor(const __grid_constant__ TensorMap in, const __grid_constant__ TensorMap out,
           unsigned boxes, Shape shape, int rounds, TraceBuffer<traced> buffer) {
  // Shared storage.
  extern __shared__ __align__(128) unsigned char slots[];
  __shared__ Barrier full[depth];
  const auto slot_at = [&](unsigned slot) { return slots + slot * shape.box_bytes(); };

  // Setup.
  const bool leads = threadIdx.x == 0;
  if (leads) {
    prefetch(in);
    prefetch(out);
    for (unsigned slot = 0; slot < depth; ++slot) full[slot].init(1);
    fence_barrier_init();
  }
  __syncthreads();

  const auto row_of = [&](unsigned box) { return box / shape.across() * shape.box_rows; };
  const auto column_of = [&](unsigned box) { return box % shape.across() * shape.box_columns; };
  ladder::Phases<traced, depth> phases(buffer);
  unsigned ahead = blockIdx.x;
  const auto load = [&](unsigned slot) {
    if (ahead >= boxes) return;
    phases.ask(slot);
    full[slot].arrive_expect(shape.box_bytes());  // of the whole box, even at the edges
    tensor_load(slot_at(slot), in, full[slot], evict_first(), row_of(ahead), column_of(ahead));
    ahead += gridDim.x;
  };
  if (leads) {
    for (unsigned slot = 0; slot < depth; ++slot) load(slot);
  }

  unsigned slot = 0, parity = 0;
  for (unsigned box = blockIdx.x; box < boxes; box += gridDim.x) {
    full[slot].wait(parity);
    phases.landed(slot);
    if (rounds > 0) {
      f_of_tile(reinterpret_cast<float4*>(slot_at(slot)), shape.box_bytes() / sizeof(float4),
                rounds, threadIdx.x, threads);
      fence_shared_to_async();
    }
    __syncthreads();
    phases.end(Phase::compute);
    if (leads) {
      tensor_store(out, slot_at(slot), evict_first(), row_of(box), column_of(box));
      bulk_commit();
      if (box != blockIdx.x) {
        bulk_wait_read<1>();
        load(slot == 0 ? depth - 1 : slot - 1);
      }
      phases.end(Phase::store);
    }
    if (++slot == depth) slot = 0, parity ^= 1;
  }
  if (leads) bulk_wait_read<0>();
}

TensorMap map_of(const float* data, std::size_t rows, Shape shape) {
  const ps::TensorView matrix(const_cast<float*>(data), ps::DType::f32,
                              {static_cast<std::int64_t>(rows), std::int64_t{shape.columns}},
                              {ps::Memory::device, ladder::current_device()});
  return encode({.tensor = matrix,
                 .box = {shape.box_rows, shape.box_columns},
                 .l2_promotion = L2Promotion::b256});
}

template <bool traced = false>
Kernel make(const char* label, Shape shape, std::vector<Intensity> at,
            TraceBuffer<traced> buffer = {}) {
  constexpr auto kernel = tensor<traced>;
  const std::size_t shared = std::size_t{shape.box_bytes()} * depth;
  return {.label = label,
          .launch =
              [=](const Work& work, cudaStream_t stream) {
                // Whole rows; the last box may hang over the edge.
                launch_aligned(work, shape.columns, stream, [&](const Work& aligned) {
                  const std::size_t rows = aligned.count / shape.columns;
                  const auto boxes =
                      static_cast<unsigned>(((rows - 1) / shape.box_rows + 1) * shape.across());
                  LaunchOptions options{.block = threads, .shared_bytes = shared};
                  const unsigned most = resident_clusters(kernel, options);
                  options.grid = boxes < most ? boxes : most;
                  launch(kernel, options, stream, map_of(aligned.in, rows, shape),
                         map_of(aligned.out, rows, shape), boxes, shape, aligned.rounds, buffer);
                });
              },
          .use = [=] { return ladder::kernel_use(kernel, threads, shared); },
          .hopper = true,
          .at = std::move(at)};
}

std::vector<Kernel> kernels() {
  constexpr auto copy_bound = Intensity::copy_bound, balanced = Intensity::balanced,
                 compute_bound = Intensity::compute_bound;
  return {make("8 rows x 256 of 256", {256, 8, 256}, {copy_bound, balanced, compute_bound}),
          make("16 rows x 256 of 256", {256, 16, 256}, {copy_bound, balanced}),
          make("32 rows x 64 of 4096", {4096, 32, 64}, {copy_bound, balanced}),
          make("8 rows x 256 of 4096", {4096, 8, 256}, {copy_bound, balanced})};
}

std::vector<Traced> traced() {
  return {{.name = "tensor", .kernel = [](const auto& buffer) {
             return make<true>("traced", {256, 8, 256}, {}, buffer);
           }}};
}

const ladder::Instructions machine{.holds = {"UTMALDG.2D", "UTMASTG.2D", "SYNCS"},
                                   .lacks = {"LDG", "STG", "LDGSTS", "UBLKCP"}};
PENSTOCK_COPY_RUNG("tensor", "TMA loads and stores boxes of a matrix, given by their coordinates.",
                   machine, kernels, traced);

}  // namespace
