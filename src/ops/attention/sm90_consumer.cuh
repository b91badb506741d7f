// A consumer of the attention kernels on Hopper: a warpgroup that has 64 queries of every tile.
//
// While the tensor cores multiply, a consumer computes the softmax of other scores: in every step
// the product of the next keys (S = Q K^T) and that of the last probabilities (O += P V) are in
// flight together, and the first product of a tile is in flight while the results of the tile
// before are stored. A product must not be in flight across the end of a loop or be issued in a
// branch, or the compiler serialises all of them.
#pragma once

#include <cstdint>

#include "ops/attention/sm90_config.cuh"
#include "ops/attention/sm90_result.cuh"
#include "ops/attention/sm90_softmax.cuh"
#include "penstock/kit/fence.cuh"
#include "penstock/kit/wgmma.cuh"

namespace ps::detail {

// `upper`: in causal tiles, the first of two consumers, whose queries need only the left half of
// the last block.
template <class Config, bool upper>
class AttentionConsumer {
  using Element = typename Config::Element;
  using Shared = AttentionShared<Config>;
  using TileQ = typename Config::TileQ;
  using TileK = typename Config::TileK;
  using TileV = typename Config::TileV;
  static constexpr unsigned slices = Config::keys / 16;  // of P along the keys

  using Scores = float[Config::keys / 2];
  using FirstScores = float[upper ? Config::keys / 4 : Config::keys / 2];
  using Probabilities = std::uint32_t[slices][4];
  using Sums = float[Config::dim_v / 2];

 public:
  __device__ AttentionConsumer(Shared& shared, const AttentionArguments& arguments, unsigned number)
      : shared_(shared),
        arguments_(arguments),
        q_ring_(shared.q_ring),
        k_ring_(shared.k_ring),
        v_ring_(shared.v_ring),
        queries_(kit::Operand<TileQ>::at(kit::shared_address(shared.q[0][number]))),
        keys_(kit::Operand<TileK>::at(kit::shared_address(shared.k))),
        values_(kit::Operand<TileV>::at(kit::shared_address(shared.v))),
        result_(shared.out(number), arguments, 64 * number),
        number_(number),
        leads_(threadIdx.x % kit::warpgroup_threads == 0) {}

  __device__ __forceinline__ void run() {
    Sums o;
    Probabilities p;
    float shrink[2];
    if (Config::takes_turns && number_ == Config::consumers - 1) pass_turn();
    {
      FirstScores s;
      take();
      // Without a tile a product of whatever is there: it must not be in a branch.
      const unsigned key_stage = more_ ? k_ring_.wait() : 0;
      issue_scores(s, key_stage);
      kit::wgmma_wait<0>(s);
      if (more_) release(k_ring_, key_stage);
      begin(s, p);
    }
    while (more_) {
      // Here, P of the tile's first block is in registers.
      bool grew = false;
#pragma unroll
      for (float& sum : o) sum = 0.f;
      int i = 1;
      if (upper && i < steps_) step<true, slices / 2>(i++, o, p, grew, shrink);
      for (; i < masked_steps_; ++i) step<true, slices>(i, o, p, grew, shrink);
      for (; i < steps_; ++i) step<false, slices>(i, o, p, grew, shrink);

      // The last product, the first one of the next tile, and the result between them.
      FirstScores s;
      unsigned key_stage = 0;
      const AttentionTile tile = current();
      const AttentionSoftmax rows = softmax_;
      if (Config::own_out) release_queries();
      if (Config::rescales_late && grew) scale_rows(o, shrink);
      const unsigned value_stage = v_ring_.wait();
      issue_values<slices>(o, p, value_stage);
      if constexpr (Config::own_out) {
        take();
        if (more_) key_stage = k_ring_.wait();
        issue_scores(s, key_stage);
        kit::wgmma_wait<1>(o);
        release(v_ring_, value_stage);
        result_.store(o, rows, tile);
      } else {
        kit::named_barrier_wait(2 + number_, kit::warpgroup_threads);  // nobody reads queries
        kit::wgmma_wait<0>(o);
        release(v_ring_, value_stage);
        result_.store(o, rows, tile);
        result_.finish();
        release_queries();
        take();
        if (more_) key_stage = k_ring_.wait();
        issue_scores(s, key_stage);
      }
      kit::wgmma_wait<0>(s);
      if (more_) release(k_ring_, key_stage);
      begin(s, p);
    }
    result_.finish();
  }

 private:
  // The scores of the block that is multiplied at step i, and the product of the probabilities of
  // the block before.
  template <bool masked, unsigned product_slices>
  __device__ __forceinline__ void step(int i, Sums& o, Probabilities& p, bool& grew,
                                       float (&shrink)[2]) {
    Scores s;
    const unsigned key_stage = k_ring_.wait();
    if (Config::takes_turns) kit::named_barrier_wait(2 + number_, 2 * kit::warpgroup_threads);
    issue_scores(s, key_stage);
    if (Config::rescales_late && grew) scale_rows(o, shrink);
    const unsigned value_stage = v_ring_.wait();
    issue_values<product_slices>(o, p, value_stage);
    if (Config::takes_turns) pass_turn();
    kit::wgmma_wait<1>(s);
    release(k_ring_, key_stage);
    cap(s);
    if constexpr (masked) mask(s, i);
    grew = softmax_.next(s, arguments_.scale, shrink);
    kit::wgmma_wait<0>(o);
    release(v_ring_, value_stage);
    pack_probabilities<Element>(p, s);
    if (!Config::rescales_late && grew) scale_rows(o, shrink);
  }

  // The probabilities of a tile's first block.
  __device__ __forceinline__ void begin(FirstScores& s, Probabilities& p) {
    cap(s);
    mask(s, 0);
    softmax_.begin(s, arguments_.scale);
    pack_probabilities<Element>(p, s);
  }

  // Waits for the next tile's queries. `more_` is false if there is none.
  __device__ void take() {
    stage_ = q_ring_.wait();
    more_ = uniform(shared_.tiles[stage_].sequence) >= 0;
    const auto& blocks = shared_.blocks[stage_];
    steps_ = uniform(blocks.count);
    masked_steps_ = uniform(blocks.masked());
  }

  __device__ AttentionTile current() const {
    const AttentionTile& tile = shared_.tiles[stage_];
    return {uniform(tile.sequence), uniform(tile.head), uniform(tile.row), uniform(tile.rows)};
  }

  // Lets the compiler see that all threads of the warp have the same value.
  __device__ static int uniform(int value) { return __shfl_sync(~0u, value, 0); }

  template <unsigned count>
  __device__ __forceinline__ void issue_scores(float (&s)[count], unsigned stage) {
    constexpr unsigned stage_units = Config::consumers * TileQ::bytes >> 4;
    const kit::Operand<TileQ> q{queries_.bits + (stage_ * stage_units)};
    const kit::Operand<TileK> k{keys_.bits + stage * (TileK::bytes >> 4)};
    kit::wgmma_fence();
#pragma unroll
    for (unsigned i = 0; i < TileQ::slices; ++i) {
      kit::multiply(s, q.slice(i), k.slice(i), i > 0);
    }
    kit::wgmma_commit();
  }

  template <unsigned product_slices>
  __device__ __forceinline__ void issue_values(Sums& o, const Probabilities& p, unsigned stage) {
    const kit::Operand<TileV> v{values_.bits + stage * (TileV::bytes >> 4)};
    kit::wgmma_fence();
#pragma unroll
    for (unsigned i = 0; i < product_slices; ++i) {
      kit::multiply<Element>(o, p[i], v.slice(i), true);
    }
    kit::wgmma_commit();
  }

  template <unsigned count>
  __device__ __forceinline__ void cap(float (&s)[count]) const {
    if constexpr (Config::general) {
      if (arguments_.cap_scale == 0.f) return;
#pragma unroll
      for (float& score : s) score = tanh_of_log2(score * arguments_.cap_scale);
    }
  }

  // Sets the scores of keys that a query does not attend to to -infinity. What it needs is read
  // from shared memory, because steps without a mask have no registers for it.
  template <unsigned count>
  __device__ __forceinline__ void mask(float (&s)[count], int step) const {
    const typename Config::Blocks& blocks = shared_.blocks[stage_];
    const int position = shared_.tiles[stage_].position, keys = shared_.tiles[stage_].keys;
    const int block = blocks.at(step);
    const int first = blocks.first_key(block) + static_cast<int>(kit::lane_index() % 4 * 2);
    const int last = blocks.keys_end(block, keys) - 1 - first;
    int highest[2], lowest[2];  // columns of s, less this thread's first one
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = static_cast<int>(64 * number_ + kit::accumulator_row(2 * r));
      const int own = position + row - first;
      highest[r] = min(last, own + arguments_.reach.right);
      lowest[r] = own - arguments_.reach.left;
    }
#pragma unroll
    for (int i = 0; i < static_cast<int>(count); ++i) {
      const int column = i / 4 * 8 + i % 2, r = i % 4 / 2;
      if (column > highest[r] || (Config::general && column < lowest[r])) s[i] = -INFINITY;
    }
  }

  __device__ void pass_turn() const {
    kit::named_barrier_arrive(2 + (number_ + 1) % Config::consumers, 2 * kit::warpgroup_threads);
  }

  // One thread releases for the warpgroup, whose products have been waited for.
  template <class Ring>
  __device__ void release(const Ring& ring, unsigned stage) const {
    if (leads_) ring.empty(stage).arrive();
  }

  // Every warp releases for itself, because it has read the tile.
  __device__ void release_queries() {
    __syncwarp();
    if (kit::elect()) q_ring_.empty(stage_).arrive();
  }

  Shared& shared_;
  const AttentionArguments& arguments_;
  kit::Consumer<kit::Barrier, Config::query_stages> q_ring_;
  kit::Consumer<kit::Barrier, Config::stages> k_ring_, v_ring_;
  kit::Operand<TileQ> queries_;
  kit::Operand<TileK> keys_;
  kit::Operand<TileV> values_;
  AttentionResult<Config> result_;
  AttentionSoftmax softmax_;
  unsigned number_, stage_ = 0;
  int steps_ = 0, masked_steps_ = 0;
  bool leads_, more_ = false;
};

}  // namespace ps::detail
