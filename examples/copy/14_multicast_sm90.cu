// Blocks that run side by side, and a row that all of them need. Four rows of x share a row of
// coefficients, y = c * f(x); the four blocks of a cluster take a row of x each. Each loads a
// quarter of the coefficients and has it written into the shared memory of all four: the row is
// fetched once, not four times. A slot may be filled when all blocks have given it back, since all
// of them write to it. Beside it, the same blocks each fetching the whole row, from the L2 cache at
// best.
#include "copy/support/f.cuh"
#include "copy/support/rung.h"
#include "penstock/kit/bulk.cuh"
#include "penstock/kit/cluster.cuh"
#include "penstock/kit/fence.cuh"
#include "penstock/kit/launch.cuh"
#include "penstock/kit/ring.h"
#include "penstock/kit/roles.cuh"
#include "penstock/kit/trace.cuh"
#include "support/kernel_use.cuh"

namespace {

using namespace ladder::copy;
using namespace ps::kit;

// Configuration.
constexpr unsigned cluster = group;  // a block for every row that shares coefficients
constexpr unsigned compute_warps = 8, depth = 4;
template <bool traced>
using TeamOf = Roles<1, compute_warps, traced ? 2 : 1>;  // traced, one more warp sees loads land
using Team = TeamOf<false>;
constexpr unsigned vectors = width / 4, row_bytes = width * sizeof(float);
constexpr unsigned at_once = vectors / Team::compute_threads;
static_assert(vectors % Team::compute_threads == 0 && row_bytes % (16 * cluster) == 0);

struct Slot {
  float4 x[vectors];
  float4 coefficients[vectors];
};

template <bool multicast, bool traced = false>
__global__ void __launch_bounds__(TeamOf<traced>::threads)
    coefficient_row(Work work, unsigned groups, TraceBuffer<traced> buffer) {
  using Team = TeamOf<traced>;

  // Shared storage.
  extern __shared__ __align__(128) unsigned char memory[];
  auto* const slots = reinterpret_cast<Slot*>(memory);
  __shared__ Ring<Barrier, depth> loaded, computed;
  __shared__ std::uint64_t issued[depth];  // when a load began, for the trace

  // Setup.
  if (threadIdx.x == 0) {
    loaded.init(1, (multicast ? cluster : 1) + (traced ? 1 : 0));
    computed.init(compute_warps, 1);
    fence_barrier_init();
  }
  cluster_arrive_relaxed();  // the others' barriers are there
  cluster_wait();

  const unsigned rank = cluster_rank(), clusters = gridDim.x / cluster;
  const unsigned first = blockIdx.x / cluster;
  const auto row_of = [&](unsigned g) { return (std::size_t{g} * group + rank) * width; };

  // Roles.
  const Role role = Team::role();
  const bool signs = role == Role::storer && Team::index(role) == 0;
  Trace<traced> trace(buffer);
  trace.begin(signs);
  if (role == Role::loader) {
    if (elect()) {
      Producer<Barrier, depth> loads(loaded);
      for (unsigned g = first; g < groups; g += clusters) {
        const unsigned s = loads.acquire(sizeof(Slot));
        if constexpr (traced) issued[s] = SmSource::now();
        bulk_load(slots[s].x, work.in + row_of(g), row_bytes, loads.full(s), evict_first());
        const float* const row = work.coefficients + std::size_t{g} * width;
        if constexpr (multicast) {
          constexpr unsigned part = width / cluster;
          bulk_load_multicast(reinterpret_cast<float*>(slots[s].coefficients) + rank * part,
                              row + rank * part, part * sizeof(float), loads.full(s),
                              (1u << cluster) - 1, evict_first());
        } else {
          bulk_load(slots[s].coefficients, row, row_bytes, loads.full(s));
        }
      }
      loads.drain();  // other blocks arrive at these barriers: wait for the last of them
    }
  } else if (role == Role::compute) {
    Consumer<Barrier, depth> inputs(loaded);
    Producer<Barrier, depth> outputs(computed);
    const unsigned thread = Team::index(role);
    auto spans = trace.role(1, thread == 0);
    for (unsigned g = first; g < groups; g += clusters) {
      Slot& slot = slots[inputs.wait()];
      outputs.acquire();
      const auto start = spans.now();
      float4 v[at_once];
#pragma unroll
      for (unsigned k = 0; k < at_once; ++k) v[k] = slot.x[thread + k * Team::compute_threads];
      f(v, work.rounds);
#pragma unroll
      for (unsigned k = 0; k < at_once; ++k) {
        const float4 c = slot.coefficients[thread + k * Team::compute_threads];
        slot.x[thread + k * Team::compute_threads] =
            make_float4(__fmul_rn(v[k].x, c.x), __fmul_rn(v[k].y, c.y), __fmul_rn(v[k].z, c.z),
                        __fmul_rn(v[k].w, c.w));
      }
      fence_shared_to_async();
      __syncwarp();
      if (lane_index() == 0) outputs.commit();
      spans.record(g, start);
    }
  } else if (!traced || Team::index(role) < warp_threads) {
    Consumer<Barrier, depth> results(computed);
    const unsigned lane = lane_index();
    // Each lane arrives at one block, so that the arrivals are issued in parallel.
    const auto give_back = [&] {
      const unsigned s = results.oldest();
      __syncwarp();
      if (lane == 0) results.release();
      if (lane > 0) results.skip_release();
      if constexpr (multicast) {
        if (lane < cluster) loaded.empty[s].arrive_in(lane);
      } else {
        if (lane == 0) loaded.empty[s].arrive();
      }
    };
    auto spans = trace.role(2, signs);
    for (unsigned g = first; g < groups; g += clusters) {
      const unsigned s = results.wait();
      const auto start = spans.now();
      if (lane == 0) {
        bulk_store(work.out + row_of(g), slots[s].x, row_bytes, evict_first());
        bulk_commit();
        bulk_wait_read<traced ? 0 : 1>();
      }
      spans.record(g, start);
      if (g != first) give_back();
    }
    if (lane == 0) bulk_wait_read<0>();
    if (first < groups) give_back();
  } else if (traced && elect()) {
    // The watcher: takes part in the loader's ring, so that no load passes it by.
    Consumer<Barrier, depth> landed(loaded);
    auto spans = trace.role(0, true);
    for (unsigned g = first; g < groups; g += clusters) {
      const unsigned s = landed.wait();
      if constexpr (traced) spans.record(g, issued[s]);
      landed.release();
    }
  }
  trace.end(signs);
}

constexpr std::size_t shared_bytes = depth * sizeof(Slot);

bool is_aligned(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; }

template <bool multicast, bool traced = false>
Kernel make(const char* label, TraceBuffer<traced> buffer = {}) {
  constexpr auto kernel = coefficient_row<multicast, traced>;
  constexpr unsigned threads = TeamOf<traced>::threads;
  return {.label = label,
          .launch =
              [=](const Work& work, cudaStream_t stream) {
                // Whole groups of rows in memory that bulk copies take; the rest by plain loads.
                const bool aligned =
                    is_aligned(work.in) && is_aligned(work.out) && is_aligned(work.coefficients);
                const auto groups =
                    aligned ? static_cast<unsigned>(work.count / (group * width)) : 0;
                if (groups > 0) {
                  LaunchOptions options{
                      .block = threads, .shared_bytes = shared_bytes, .cluster = cluster};
                  const unsigned most = resident_clusters(kernel, options);
                  options.grid = (groups < most ? groups : most) * cluster;
                  launch(kernel, options, stream, work, groups, buffer);
                }
                launch_plain(Formula::row, work, 0, groups * group * width, stream);
              },
          .use = [] { return ladder::kernel_use(kernel, threads, shared_bytes); },
          .formula = Formula::row,
          .hopper = true};
}

std::vector<Kernel> kernels() {
  return {make<false>("each block fetches the row"), make<true>("multicast to the cluster")};
}

std::vector<Traced> traced() {
  return {{.name = "multicast", .roles = role_names(), .kernel = [](const auto& buffer) {
             return make<true, true>("traced", buffer);
           }}};
}

const ladder::Instructions machine{.holds = {"UBLKCP.MULTICAST", "UBLKCP.S.G", "UCGABAR_ARV"},
                                   .lacks = {"LDG", "STG"}};
PENSTOCK_COPY_RUNG("multicast", "TMA multicast fetches a row once for all blocks of a cluster.",
                   machine, kernels, traced);

}  // namespace
