// A persistent block computes many tiles of 128 queries of one head, one after the other. Its loop
// is rotated: it begins in the middle of a tile, after the first softmax, so that the last product
// of a tile and the first of the next tile are issued together. While they run, the results of the
// tile are stored. The rungs differ in the order of the tiles.
#pragma once

#include "attention/support/roles.cuh"
#include "penstock/kit/gemm/trace.cuh"
#include "penstock/kit/piece_store.cuh"
#include "support/phases.cuh"

namespace ladder::attention {

// One tile. A tile without keys marks the end.
struct alignas(16) Work {
  unsigned head, query;  // the first of its queries
  unsigned blocks;       // of keys
};

// Roles in the trace: loads, and of each consumer products, softmax and stores.
constexpr unsigned traced_roles = 1 + 3 * consumers;

template <class Element, bool traced = false>
struct PersistentShared : kit::GemmRecords<traced, traced_roles> {
  static constexpr unsigned q_stages = 2;
  using Store = kit::PieceStore<Element, 2>;

  alignas(1024) unsigned char q[q_stages][consumers][TileQ<Element>::bytes];
  alignas(1024) unsigned char k[stages][TileK<Element>::bytes];
  alignas(1024) unsigned char v[stages][TileV<Element>::bytes];
  typename Store::Shared out[consumers];
  Work work[q_stages];  // handed over with the queries
  kit::Ring<kit::Barrier, q_stages> q_ring;
  kit::Ring<kit::Barrier, stages> k_ring, v_ring;
  kit::GemmIssued<traced, stages> k_issued, v_issued;
};

template <bool traced = false>
struct PersistentArguments {
  Maps maps;
  Problem p;
  kit::GroupedOrder order;
  kit::TraceBuffer<traced> trace;

  template <bool causal>
  __device__ Work work_of(unsigned number) const {
    const kit::Tile tile = order.tile(number);
    const unsigned query = (order.columns() - 1 - tile.column) * tile_queries;
    const unsigned keys = causal ? min(query + tile_queries, p.rows) : p.rows;
    return {tile.row, query, (keys + block_keys - 1) / block_keys};
  }
};

// How a block chooses its next tile: with a fixed stride, or by the problem's counter, which counts
// the tiles that all blocks have taken in addition to their first ones.
enum class Taking { stride, counter };

// Loader: one thread
template <class Element, bool causal, Taking taking, bool traced>
class PersistentLoader {
  using Shared = PersistentShared<Element, traced>;
  using Arguments = PersistentArguments<traced>;

 public:
  __device__ PersistentLoader(Shared& shared, const Arguments& a)
      : shared_(shared), a_(a), q_(shared.q_ring), k_(shared.k_ring), v_(shared.v_ring) {}

  __device__ void run() {
    const unsigned count = a_.order.count();
    for (unsigned number = blockIdx.x; number < count;) {  // every block has a first tile
      // Used after the tile is loaded, so that nothing waits for the counter here.
      const unsigned taken = taking == Taking::counter ? atomicAdd(a_.p.counter, 1) : number;
      load(a_.template work_of<causal>(number));
      number = gridDim.x + taken;
      if (taking == Taking::counter && taken == count - 1) {
        *a_.p.counter = 0;  // the last of all to take one, for the next launch
      }
    }
    const unsigned slot = q_.acquire();
    shared_.work[slot].blocks = 0;
    q_.full(slot).arrive();
  }

 private:
  // Blocks of keys come from right to left: only the first one needs a mask.
  __device__ void load(const Work& work) {
    unsigned slot = q_.acquire();
    shared_.work[slot] = work;
    q_.full(slot).arrive_expect(consumers * TileQ<Element>::bytes);
    for (unsigned i = 0; i < consumers; ++i) {
      load_tile<Element, group_queries>(shared_.q[slot][i], a_.maps.q, q_.full(slot),
                                        kit::evict_first(), work.head,
                                        work.query + i * group_queries);
    }
    for (unsigned block = work.blocks; block-- > 0;) {
      const unsigned key = block * block_keys;
      slot = k_.acquire(TileK<Element>::bytes);
      if constexpr (traced) shared_.k_issued.issued[slot] = kit::SmSource::now();
      load_tile<Element, block_keys>(shared_.k[slot], a_.maps.k, k_.full(slot), kit::evict_last(),
                                     work.head, key);
      slot = v_.acquire(TileV<Element>::bytes);
      if constexpr (traced) shared_.v_issued.issued[slot] = kit::SmSource::now();
      load_tile<Element, block_keys>(shared_.v[slot], a_.maps.v, v_.full(slot), kit::evict_last(),
                                     work.head, key);
    }
  }

  Shared& shared_;
  const Arguments& a_;
  kit::Producer<kit::Barrier, Shared::q_stages> q_;
  kit::Producer<kit::Barrier, stages> k_, v_;
};

// Records when keys and values arrive, in a traced kernel with a fixed stride. The thread is one
// more consumer of the rings.
template <class Element, bool causal>
__device__ void watch_loads(PersistentShared<Element, true>& shared,
                            const PersistentArguments<true>& a, const kit::Trace<true>& trace) {
  kit::SharedRoleTrace<true> loads(shared.records(0), trace, 0, true);
  kit::Consumer k(shared.k_ring), v(shared.v_ring);
  unsigned step = 0;
  for (unsigned number = blockIdx.x; number < a.order.count(); number += gridDim.x) {
    for (unsigned block = a.work_of<causal>(number).blocks; block-- > 0; ++step) {
      loads.record(step, shared.k_issued.issued[k.wait()]);
      k.release();
      loads.record(step, shared.v_issued.issued[v.wait()]);
      v.release();
    }
  }
}

// Consumer: one warpgroup
template <class Element, bool causal, bool traced>
class PersistentConsumer {
  using Shared = PersistentShared<Element, traced>;
  using Arguments = PersistentArguments<traced>;
  using Spans = kit::SharedRoleTrace<traced>;

 public:
  __device__ PersistentConsumer(Shared& shared, const Arguments& a, unsigned number,
                                const kit::Trace<traced>& trace)
      : shared_(shared),
        a_(a),
        number_(number),
        scale_(a.p.scale * log2_e),
        q_(shared.q_ring),
        k_(shared.k_ring),
        v_(shared.v_ring),
        out_(shared.out[number]),
        products_(shared.records(1 + 3 * number), trace, 1 + 3 * number, leads()),
        softmaxes_(shared.records(2 + 3 * number), trace, 2 + 3 * number, leads()),
        stores_(shared.records(3 + 3 * number), trace, 3 + 3 * number, leads()) {}

  __device__ __forceinline__ void run() {
    Sums o;
    Probabilities p;
    {
      Scores s;
      take();
      const unsigned key_slot = k_.wait();
      const auto start = products_.now();
      start_scores<Element>(s, shared_.q[slot_][number_], shared_.k[key_slot]);
      kit::wgmma_wait<0>(s);
      products_.record(steps_++, start);
      release(k_);
      begin(s, p);
    }
    while (now_.blocks > 0) {
      // Here, the probabilities of the tile's first block are in registers.
#pragma unroll
      for (float& sum : o) sum = 0;
      for (unsigned block = 1; block < now_.blocks; ++block) step(o, p);

      const Work done = now_;
      Softmax rows = softmax_;
      release(q_);
      const unsigned value_slot = v_.wait();
      const auto start = products_.now();
      start_values<Element>(o, p, shared_.v[value_slot]);
      take();
      // Behind the last tile, a product of whatever is there: it must not be in a branch.
      const unsigned key_slot = now_.blocks > 0 ? k_.wait() : 0;
      Scores s;
      start_scores<Element>(s, shared_.q[slot_][number_], shared_.k[key_slot]);
      kit::wgmma_wait<1>(o);
      release(v_);
      const auto store_start = stores_.now();
      divide(o, rows);
      store(o, done);
      stores_.record(steps_, store_start);
      kit::wgmma_wait<0>(s);
      products_.record(steps_++, start);
      if (now_.blocks > 0) release(k_);
      begin(s, p);
    }
    out_.finish();
  }

 private:
  // Waits for the next tile's queries.
  __device__ void take() {
    slot_ = q_.wait();
    const Work& work = shared_.work[slot_];
    now_ = {uniform(work.head), uniform(work.query), uniform(work.blocks)};
  }
  // Lets the compiler see that all threads of the warp have the same value.
  __device__ static unsigned uniform(unsigned value) { return __shfl_sync(~0u, value, 0); }

  // The scores of the next block, and the sums of the one before.
  __device__ __forceinline__ void step(Sums& o, Probabilities& p) {
    Scores s;
    const unsigned key_slot = k_.wait();
    const auto start = products_.now();
    start_scores<Element>(s, shared_.q[slot_][number_], shared_.k[key_slot]);
    start_values<Element>(o, p, shared_.v[v_.wait()]);
    kit::wgmma_wait<1>(s);
    const auto softmax_start = softmaxes_.now();
    release(k_);
    float shrink[2];
    const bool grew = softmax_.next(s, scale_, shrink);
    kit::wgmma_wait<0>(o);
    products_.record(steps_, start);
    release(v_);
    pack_probabilities<Element>(p, s);
    if (grew) scale_rows(o, shrink);
    record_softmax(softmax_start, p);
  }

  // Until the probabilities are there.
  __device__ void record_softmax(typename Spans::Moment start, const Probabilities& p) {
    if constexpr (traced) ladder::wait_for(p[block_keys / 16 - 1][3]);
    softmaxes_.record(steps_++, start);
  }

  // The probabilities of a tile's first block, which has its last keys.
  __device__ __forceinline__ void begin(Scores& s, Probabilities& p) {
    const unsigned first_key = (now_.blocks - 1) * block_keys;
    const unsigned own = kit::lane_index() % 4 * 2;
    int last[2];  // column of s, less this thread's first one
#pragma unroll
    for (unsigned r = 0; r < 2; ++r) {
      const unsigned query = now_.query + number_ * group_queries + kit::accumulator_row(2 * r);
      const unsigned key = causal ? min(query, a_.p.rows - 1) : a_.p.rows - 1;
      last[r] = static_cast<int>(key - first_key - own);
    }
#pragma unroll
    for (int i = 0; i < static_cast<int>(block_keys / 2); ++i) {
      if (i / 4 * 8 + i % 2 > last[i % 4 / 2]) s[i] = -INFINITY;
    }
    softmax_.begin(s, scale_);
    pack_probabilities<Element>(p, s);
  }

  // Rows beyond the last are outside the map.
  __device__ __forceinline__ void store(const Sums& o, const Work& done) {
    const unsigned row = done.query + number_ * group_queries + out_.first_row();
#pragma unroll
    for (unsigned x = 0; x < dim / 64; ++x) {
      out_.put([&](unsigned i,
                   std::uint32_t (&to)[4]) { kit::pack_pairs<Element>(o + 32 * x + 8 * i, to); },
               [&](const void* piece) {
                 kit::tensor_store(a_.maps.out, piece, kit::evict_first(), done.head, row, 64 * x);
               });
    }
  }

  // The first thread of a consumer records.
  __device__ static bool leads() { return threadIdx.x % kit::warpgroup_threads == 0; }

  Shared& shared_;
  const Arguments& a_;
  unsigned number_, slot_ = 0;
  float scale_;
  kit::Consumer<kit::Barrier, Shared::q_stages> q_;
  kit::Consumer<kit::Barrier, stages> k_, v_;
  typename Shared::Store out_;
  Work now_{};
  Softmax softmax_;
  Spans products_, softmaxes_, stores_;
  unsigned steps_ = 0;  // for the trace: of which products were started
};

template <class Element, bool causal, Taking taking, bool traced = false>
__global__ void __launch_bounds__(role_threads, 1)
    persistent_kernel(const __grid_constant__ PersistentArguments<traced> a) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<PersistentShared<Element, traced>*>(memory);
  static_assert(sizeof(shared) <= 227 * 1024, "a block has 227 KiB of shared memory");
  if (threadIdx.x == 0) {
    shared.q_ring.init(1, consumers);
    shared.k_ring.init(1, consumers + (traced ? 1 : 0));
    shared.v_ring.init(1, consumers + (traced ? 1 : 0));
    kit::fence_barrier_init();
  }
  __syncthreads();

  kit::Trace<traced> trace(a.trace);
  const unsigned group = kit::warpgroup_index();
  if (group == 0) {
    kit::give_registers<loader_registers>();
    if (kit::warp_index() == 0 && kit::elect()) {
      PersistentLoader<Element, causal, taking, traced>(shared, a).run();
    }
    if constexpr (traced) {
      static_assert(taking == Taking::stride, "watch_loads() knows no counter");
      if (kit::warp_index() == 1 && kit::elect()) {
        trace.begin(true);
        watch_loads<Element, causal>(shared, a, trace);
        trace.end(true);
      }
    }
  } else {
    kit::take_registers<consumer_registers>();
    PersistentConsumer<Element, causal, traced>(shared, a, group - 1, trace).run();
  }
}

template <class Element, bool causal, Taking taking, bool traced = false>
void run_persistent(const Problem& p, const ps::Stream& stream, unsigned group,
                    const kit::TraceBuffer<traced>& trace = {}) {
  constexpr auto kernel = persistent_kernel<Element, causal, taking, traced>;
  const PersistentArguments<traced> arguments{
      .maps = maps_of<Element>(p, group_queries, block_keys),
      .p = p,
      .order = order_of(p.heads, p.rows, group),
      .trace = trace};
  kit::LaunchOptions options{.block = role_threads,
                             .shared_bytes = sizeof(PersistentShared<Element, traced>)};
  options.grid = std::min(kit::resident_clusters(kernel, options), arguments.order.count());
  kit::launch(kernel, options, ps::cuda_stream(stream), arguments);
}

template <class Element, bool causal, Taking taking>
ladder::KernelUse persistent_use() {
  return ladder::kernel_use(persistent_kernel<Element, causal, taking>, role_threads,
                            sizeof(PersistentShared<Element>));
}

}  // namespace ladder::attention
