// Adds up the sums of a tile whose steps along K are split over the blocks of a cluster. Each warp
// of a consumer has 16 rows; one block of the cluster owns them. It receives the sums of the same
// warp in the other blocks through distributed shared memory and adds them in the order of ranks,
// so that the bits do not depend on which block is first.
#pragma once

#include "penstock/kit/barrier.cuh"
#include "penstock/kit/cluster.cuh"
#include "penstock/kit/gemm/config.cuh"
#include "penstock/kit/ring.h"
#include "penstock/kit/warp.cuh"

namespace ps::kit {

// In shared memory, for one consumer. Threads only exchange sums with the same thread of other
// blocks, so sums are stored as the threads hold them, in fours.
template <class Config>
struct GemmInbox {
  static constexpr unsigned warps = warpgroup_threads / warp_threads;
  static constexpr unsigned owned = warps / Config::split;      // warps whose rows this block owns
  static constexpr unsigned others = Config::split - 1;         // blocks that send to it
  static constexpr unsigned fours = Config::tile_n / 2 / 4;     // per thread
  static constexpr unsigned bytes = fours * 16 * warp_threads;  // per warp

  float4 sums[owned][others][fours][warp_threads];
  // Of each warp. Full: the sums of all other blocks have arrived. Empty: the owner has read what
  // this warp sent, which may send again.
  Ring<ClusterBarrier, 1> ring[warps];
};

// Part of GemmSlots: empty unless the steps of a tile are split.
template <class Config, bool split>
struct GemmExchanged {
  __device__ void init_exchange() {}
};
template <class Config>
struct GemmExchanged<Config, true> {
  GemmInbox<Config> inbox[Config::consumers];

  // Called by one thread before the cluster synchronises.
  __device__ void init_exchange() {
    for (auto& each : inbox) {
      for (auto& ring : each.ring) ring.init(1, 1);
    }
  }
};

// One consumer's end; all its threads have one.
template <class Config>
class GemmExchange {
 public:
  using Inbox = GemmInbox<Config>;
  using Sums = float[Config::tile_n / 2];

  __device__ GemmExchange(Inbox& inbox, unsigned rank)
      : inbox_(inbox),
        warp_(warp_index() % Inbox::warps),
        rank_(rank),
        owner_(warp_ % Config::split),
        receiver_(inbox.ring[warp_]),
        sender_(inbox.ring[warp_]) {}

  // If this block owns the rows of the warp, adds the sums of the other blocks to d and returns
  // true. Otherwise sends d to the owner. All threads of the warp call this.
  __device__ bool add_up(Sums& d) {
    if (owner_ != rank_) {
      sender_.acquire();
      send(d);
      return false;
    }
    if (elect()) ring().full[0].arrive_expect(Inbox::others * Inbox::bytes);
    receiver_.wait();
    receive(d);
    __syncwarp();
    const unsigned lane = lane_index();
    if (lane < Config::split && lane != rank_) {
      ring().empty[0].Barrier::arrive_in(lane);  // relaxed: the sums were only read
    }
    receiver_.skip_release();
    return true;
  }

  // Call after the last tile: until then owners arrive at this block's barriers.
  __device__ void finish() {
    if (owner_ != rank_) sender_.acquire();
  }

 private:
  __device__ Ring<ClusterBarrier, 1>& ring() { return inbox_.ring[warp_]; }

  // Where block `from` puts the sums of this warp in the owner's memory.
  __device__ auto& place(unsigned from) {
    return inbox_.sums[warp_ / Config::split][from - (from > owner_)];
  }

  __device__ void send(const Sums& d) {
    auto& sums = place(rank_);
#pragma unroll
    for (unsigned i = 0; i < Inbox::fours; ++i) {
      store_in(&sums[i][lane_index()],
               make_float4(d[4 * i], d[4 * i + 1], d[4 * i + 2], d[4 * i + 3]), ring().full[0],
               owner_);
    }
  }

  __device__ void receive(Sums& d) {
#pragma unroll
    for (unsigned i = 0; i < Inbox::fours; ++i) {
      const float own[4] = {d[4 * i], d[4 * i + 1], d[4 * i + 2], d[4 * i + 3]};
#pragma unroll
      for (unsigned from = 0; from < Config::split; ++from) {
        const float4 sent = from == rank_ ? make_float4(own[0], own[1], own[2], own[3])
                                          : place(from)[i][lane_index()];
        d[4 * i] = from == 0 ? sent.x : d[4 * i] + sent.x;
        d[4 * i + 1] = from == 0 ? sent.y : d[4 * i + 1] + sent.y;
        d[4 * i + 2] = from == 0 ? sent.z : d[4 * i + 2] + sent.z;
        d[4 * i + 3] = from == 0 ? sent.w : d[4 * i + 3] + sent.w;
      }
    }
  }

  Inbox& inbox_;
  unsigned warp_, rank_;
  unsigned owner_;  // of the warp's rows
  Consumer<ClusterBarrier, 1> receiver_;
  Producer<ClusterBarrier, 1> sender_;
};

}  // namespace ps::kit
