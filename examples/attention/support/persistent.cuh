// A persistent block takes tile after tile, 128 queries of one head each, and its loop is rotated:
// it begins in the middle of a tile, behind the first softmax, so that the last product of a tile
// and the first of the next are issued together. While they run, the results of the tile are
// stored. The rungs differ in which tile comes next.
#pragma once

#include "attention/support/roles.cuh"
#include "penstock/kit/piece_store.cuh"

namespace ladder::attention {

// One tile. Behind the last one comes one without keys.
struct alignas(16) Work {
  unsigned head, query;  // the first of its queries
  unsigned blocks;       // of keys
};

template <class Element>
struct PersistentShared {
  static constexpr unsigned q_stages = 2;
  using Store = kit::PieceStore<Element, 2>;

  alignas(1024) unsigned char q[q_stages][consumers][TileQ<Element>::bytes];
  alignas(1024) unsigned char k[stages][TileK<Element>::bytes];
  alignas(1024) unsigned char v[stages][TileV<Element>::bytes];
  typename Store::Shared out[consumers];
  Work work[q_stages];  // handed over with the queries
  kit::Ring<kit::Barrier, q_stages> q_ring;
  kit::Ring<kit::Barrier, stages> k_ring, v_ring;
};

struct PersistentArguments {
  Maps maps;
  Problem p;
  kit::GroupedOrder order;
};

// How a block takes its next tile: with a fixed stride, or by the problem's counter, which counts
// the tiles that blocks took after their first.
enum class Taking { stride, counter };

// Loader: one thread
template <class Element, bool causal, Taking taking>
class PersistentLoader {
 public:
  __device__ PersistentLoader(PersistentShared<Element>& shared, const PersistentArguments& a)
      : shared_(shared), a_(a), q_(shared.q_ring), k_(shared.k_ring), v_(shared.v_ring) {}

  __device__ void run() {
    const unsigned count = a_.order.count();
    for (unsigned number = blockIdx.x; number < count;) {  // every block has a first tile
      // Used after the tile is loaded, so that nothing waits for the counter here.
      const unsigned taken = taking == Taking::counter ? atomicAdd(a_.p.counter, 1) : number;
      load(work_of(number));
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
  __device__ Work work_of(unsigned number) const {
    const kit::Tile tile = a_.order.tile(number);
    const unsigned query = (a_.order.columns() - 1 - tile.column) * tile_queries;
    const unsigned keys = causal ? min(query + tile_queries, a_.p.rows) : a_.p.rows;
    return {tile.row, query, (keys + block_keys - 1) / block_keys};
  }

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
      load_tile<Element, block_keys>(shared_.k[slot], a_.maps.k, k_.full(slot), kit::evict_last(),
                                     work.head, key);
      slot = v_.acquire(TileV<Element>::bytes);
      load_tile<Element, block_keys>(shared_.v[slot], a_.maps.v, v_.full(slot), kit::evict_last(),
                                     work.head, key);
    }
  }

  PersistentShared<Element>& shared_;
  const PersistentArguments& a_;
  kit::Producer<kit::Barrier, PersistentShared<Element>::q_stages> q_;
  kit::Producer<kit::Barrier, stages> k_, v_;
};

// Consumer: one warpgroup
template <class Element, bool causal>
class PersistentConsumer {
 public:
  __device__ PersistentConsumer(PersistentShared<Element>& shared, const PersistentArguments& a,
                                unsigned number)
      : shared_(shared),
        a_(a),
        number_(number),
        scale_(a.p.scale * log2_e),
        q_(shared.q_ring),
        k_(shared.k_ring),
        v_(shared.v_ring),
        out_(shared.out[number]) {}

  __device__ __forceinline__ void run() {
    Sums o;
    Probabilities p;
    {
      Scores s;
      take();
      start_scores<Element>(s, shared_.q[slot_][number_], shared_.k[k_.wait()]);
      kit::wgmma_wait<0>(s);
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
      start_values<Element>(o, p, shared_.v[v_.wait()]);
      take();
      // Behind the last tile, a product of whatever is there: it must not be in a branch.
      const unsigned key_slot = now_.blocks > 0 ? k_.wait() : 0;
      Scores s;
      start_scores<Element>(s, shared_.q[slot_][number_], shared_.k[key_slot]);
      kit::wgmma_wait<1>(o);
      release(v_);
      divide(o, rows);
      store(o, done);
      kit::wgmma_wait<0>(s);
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
    start_scores<Element>(s, shared_.q[slot_][number_], shared_.k[k_.wait()]);
    start_values<Element>(o, p, shared_.v[v_.wait()]);
    kit::wgmma_wait<1>(s);
    release(k_);
    float shrink[2];
    const bool grew = softmax_.next(s, scale_, shrink);
    kit::wgmma_wait<0>(o);
    release(v_);
    pack_probabilities<Element>(p, s);
    if (grew) scale_rows(o, shrink);
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

  // Rows behind the last are outside the map.
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

  PersistentShared<Element>& shared_;
  const PersistentArguments& a_;
  unsigned number_, slot_ = 0;
  float scale_;
  kit::Consumer<kit::Barrier, PersistentShared<Element>::q_stages> q_;
  kit::Consumer<kit::Barrier, stages> k_, v_;
  typename PersistentShared<Element>::Store out_;
  Work now_{};
  Softmax softmax_;
};

template <class Element, bool causal, Taking taking>
__global__ void __launch_bounds__(role_threads, 1)
    persistent_kernel(const __grid_constant__ PersistentArguments a) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<PersistentShared<Element>*>(memory);
  static_assert(sizeof(shared) <= 227 * 1024, "a block has 227 KiB of shared memory");
  if (threadIdx.x == 0) {
    shared.q_ring.init(1, consumers);
    shared.k_ring.init(1, consumers);
    shared.v_ring.init(1, consumers);
    kit::fence_barrier_init();
  }
  __syncthreads();

  const unsigned group = kit::warpgroup_index();
  if (group == 0) {
    kit::give_registers<loader_registers>();
    if (kit::warp_index() == 0 && kit::elect()) {
      PersistentLoader<Element, causal, taking>(shared, a).run();
    }
  } else {
    kit::take_registers<consumer_registers>();
    PersistentConsumer<Element, causal>(shared, a, group - 1).run();
  }
}

template <class Element, bool causal, Taking taking>
void run_persistent(const Problem& p, const ps::Stream& stream, unsigned group) {
  constexpr auto kernel = persistent_kernel<Element, causal, taking>;
  const PersistentArguments arguments{.maps = maps_of<Element>(p, group_queries, block_keys),
                                      .p = p,
                                      .order = order_of(p.heads, p.rows, group)};
  kit::LaunchOptions options{.block = role_threads,
                             .shared_bytes = sizeof(PersistentShared<Element>)};
  options.grid = std::min(kit::resident_clusters(kernel, options), arguments.order.count());
  kit::launch(kernel, options, ps::cuda_stream(stream), arguments);
}

template <class Element, bool causal, Taking taking>
ladder::KernelUse persistent_use() {
  return ladder::kernel_use(persistent_kernel<Element, causal, taking>, role_threads,
                            sizeof(PersistentShared<Element>));
}

}  // namespace ladder::attention
