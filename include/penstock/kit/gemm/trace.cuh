// The in-kernel trace (kit/trace.h) of a matrix product: loads, products and stores. Empty unless
// Config::traced.
#pragma once

#include <cstdint>

#include "penstock/kit/barrier.cuh"
#include "penstock/kit/ring.h"
#include "penstock/kit/trace.cuh"
#include "penstock/kit/warp.cuh"
#include "penstock/kit/wgmma.cuh"

namespace ps::kit {

// A configuration with tracing enabled.
template <class Config>
struct TracedGemm : Config {
  static constexpr bool traced = true;
};

// Role numbers in the trace: the loader is 0, and each consumer has two roles.
PENSTOCK_HD constexpr unsigned gemm_products_role(unsigned consumer) { return 1 + 2 * consumer; }
PENSTOCK_HD constexpr unsigned gemm_stores_role(unsigned consumer) { return 2 + 2 * consumer; }

// In shared memory: the time when the load of each slot was issued.
template <bool traced, unsigned depth>
struct GemmIssued {};
template <unsigned depth>
struct GemmIssued<true, depth> {
  std::uint64_t issued[depth];
};

// In shared memory: the state of each role's records, by its number.
template <bool traced, unsigned roles>
struct GemmRecords : SharedRoleTrace<false>::Shared {
  __device__ SharedRoleTrace<false>::Shared& records(unsigned) { return *this; }
};
template <unsigned roles>
struct GemmRecords<true, roles> {
  SharedRoleTrace<true>::Shared of[roles];

  __device__ SharedRoleTrace<true>::Shared& records(unsigned role) { return of[role]; }
};

// The steps of one consumer; all its threads have one. The tensor cores execute steps in order: a
// step begins when the previous one has ended and its slot has been loaded.
template <bool on, class Spans = RoleTrace<on, SmSource>>
class GemmSteps {
 public:
  __device__ explicit GemmSteps(Spans& spans) : spans_(spans) {}

  // Calls consumer.wait(). If the slot is not loaded yet, first waits for the products in flight,
  // to record when they end.
  template <class Consumer>
  __device__ unsigned wait(Consumer& consumer) {
    const bool ready = __all_sync(0xffffffff, consumer.try_wait());
    if (!ready && pending_ > 0) {
      wgmma_wait<0>();
      all_but(0);
    }
    const unsigned slot = consumer.wait(ready);
    if (pending_++ == 0) begin_ = spans_.now();
    return slot;
  }

  // Records that all but the `youngest` steps have ended.
  __device__ void all_but(unsigned youngest) {
    for (; pending_ > youngest; --pending_) {
      const auto end = spans_.now();
      spans_.record(done_++, begin_, end);
      begin_ = end;
    }
  }

  // Leaves the numbers of `steps` steps to another consumer. None may be in flight.
  __device__ void skip(unsigned steps) { done_ += steps; }

  __device__ unsigned last() const { return done_ - 1; }

 private:
  Spans& spans_;
  typename Spans::Moment begin_{};
  unsigned pending_ = 0, done_ = 0;
};

template <class Spans>
class GemmSteps<false, Spans> {
 public:
  GemmSteps() = default;
  __device__ explicit GemmSteps(Spans&) {}

  template <class Consumer>
  __device__ unsigned wait(Consumer& consumer) {
    return consumer.wait();
  }
  __device__ void all_but(unsigned) {}
  __device__ void skip(unsigned) {}
  __device__ unsigned last() const { return 0; }
};

// The steps of one consumer, and the stores that follow them.
template <bool on>
class GemmTrace : public GemmSteps<on, SharedRoleTrace<on>> {
 public:
  using Spans = SharedRoleTrace<on>;

  __device__ GemmTrace(Spans& products, Spans& stores)
      : GemmSteps<on, Spans>(products), stores_(stores) {}

  // Calls store() and records it as the stores of the last step.
  template <class Store>
  __device__ void stores(const Store& store) {
    const auto start = stores_.now();
    store();
    stores_.record(this->last(), start);
  }

 private:
  Spans& stores_;
};

// Records when loads complete. Called by one otherwise idle thread, which must be a consumer of the
// ring.
template <class Consumer, class Spans>
__device__ void watch_loads(Consumer& landed, Spans& spans, const std::uint64_t* issued,
                            unsigned first, unsigned steps) {
  for (unsigned step = 0; step < steps; ++step) {
    const unsigned slot = landed.wait();
    spans.record(first + step, issued[slot]);
    landed.release();
  }
}

// The producer of a loader that occupies its whole warpgroup: no thread is left for watch_loads(),
// so in a traced kernel the first thread looks for completed loads while it waits for a slot. A
// load that completes while it issues the next one is recorded after that.
template <bool on, unsigned depth>
class GemmProducer : public Producer<Barrier, depth> {
 public:
  template <class Slots>
  __device__ explicit GemmProducer(Slots& slots) : Producer<Barrier, depth>(slots.ring) {}
};

template <unsigned depth>
class GemmProducer<true, depth> : Producer<Barrier, depth> {
  using Base = Producer<Barrier, depth>;

 public:
  // The first thread has a SharedRoleTrace in slots.records(0).
  template <class Slots>
  __device__ explicit GemmProducer(Slots& slots)
      : Base(slots.ring), landed_(slots.ring), issued_(slots.issued), records_(slots.records(0)) {}

  using Base::full;

  __device__ unsigned acquire() {
    if (threadIdx.x == 0) {
      while (!this->test_acquire()) watch();
    }
    return Base::acquire();
  }

  __device__ void drain() {
    for (unsigned slot = 0; slot < depth; ++slot) acquire();
  }

 private:
  __device__ void watch() {
    if (!landed_.test_wait()) return;
    const unsigned slot = landed_.wait(true);
    records_.spans().record(loads_++, issued_[slot]);
    landed_.release();
  }

  Consumer<Barrier, depth> landed_;
  const std::uint64_t* issued_;
  SharedRoleTrace<true>::Shared& records_;
  unsigned loads_ = 0;
};

}  // namespace ps::kit
