// A matrix product's kernel in a trace (kit/trace.h): when loads were on their way, what the
// consumers multiplied, and how long the way out took. All of it is nothing for a Config that is
// not traced.
#pragma once

#include <cstdint>

#include "penstock/kit/trace.cuh"
#include "penstock/kit/warp.cuh"
#include "penstock/kit/wgmma.cuh"

namespace ps::kit {

// The same kernel with its trace switched on.
template <class Config>
struct TracedGemm : Config {
  static constexpr bool traced = true;
};

// The roles by number: the loader is 0, and of every consumer there are two.
PENSTOCK_HD constexpr unsigned gemm_products_role(unsigned consumer) { return 1 + 2 * consumer; }
PENSTOCK_HD constexpr unsigned gemm_stores_role(unsigned consumer) { return 2 + 2 * consumer; }

// In shared memory: when the load of each slot began.
template <bool traced, unsigned depth>
struct GemmIssued {};
template <unsigned depth>
struct GemmIssued<true, depth> {
  std::uint64_t issued[depth];
};

// A consumer's steps, in all threads of it. The tensor cores take them in order: a step begins when
// the one before is through, or, where that is later, when its slot is there.
template <bool on>
class GemmSteps {
 public:
  using Spans = RoleTrace<on, SmSource>;

  __device__ explicit GemmSteps(Spans& spans) : spans_(spans) {}

  // consumer.wait(). Where the slot is not there yet, it first looks for the end of what is under
  // way: the tensor cores have nothing else.
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

  // All but the `youngest` steps are through.
  __device__ void all_but(unsigned youngest) {
    for (; pending_ > youngest; --pending_) {
      const auto end = spans_.now();
      spans_.record(done_++, begin_, end);
      begin_ = end;
    }
  }

  __device__ unsigned last() const { return done_ - 1; }

 private:
  Spans& spans_;
  typename Spans::Moment begin_{};
  unsigned pending_ = 0, done_ = 0;
};

template <>
class GemmSteps<false> {
 public:
  GemmSteps() = default;
  __device__ explicit GemmSteps(RoleTrace<false, SmSource>&) {}

  template <class Consumer>
  __device__ unsigned wait(Consumer& consumer) {
    return consumer.wait();
  }
  __device__ void all_but(unsigned) {}
  __device__ unsigned last() const { return 0; }
};

// One thread of the block that has nothing else to do: sees the loads land. It is one of the ring's
// consumers, so that no phase passes it by.
template <class Consumer, class Spans>
__device__ void watch_loads(Consumer& landed, Spans& spans, const std::uint64_t* issued,
                            unsigned first, unsigned steps) {
  for (unsigned step = 0; step < steps; ++step) {
    const unsigned slot = landed.wait();
    spans.record(first + step, issued[slot]);
    landed.release();
  }
}

}  // namespace ps::kit
