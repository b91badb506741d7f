// The phases of one thread as roles of its block's trace, for kernels whose threads all do the same
// things one after the other. Switched off, all of it is nothing.
//
//   ladder::Phases<traced> phases(buffer);
//   const float x = in[i];
//   phases.end(Phase::load, x);                  // from the phase before until x is there
//   out[i] = phases.end(Phase::compute, f(x));
//   phases.end(Phase::store);                    // until it was issued; the turn is over
#pragma once

#include <cstddef>

#include "penstock/kit/trace.cuh"

namespace ladder {

// By number in the trace. Kernels that never meet others name three roles.
enum class Phase : unsigned { load, compute, store, meet };

// A clock is read when the instructions before it were issued. This one is issued when `value` is
// there; it does nothing, or next to nothing.
__device__ inline void wait_for(unsigned value) {
  asm volatile(
      "{\n"
      ".reg .pred never;\n"
      "setp.eq.u32 never, %0, 0x7fc0ffee;\n"
      "@never nanosleep.u32 0;\n"
      "}" ::"r"(value)
      : "memory");
}
__device__ inline void wait_for(float value) { wait_for(__float_as_uint(value)); }
__device__ inline void wait_for(const float4& value) {
  wait_for(value.x), wait_for(value.y), wait_for(value.z), wait_for(value.w);
}
template <class T, std::size_t count>
__device__ void wait_for(const T (&values)[count]) {
#pragma unroll
  for (std::size_t i = 0; i < count; ++i) wait_for(values[i]);
}

// Made by every thread of the block; the first one's phases are recorded. `depth`: loads that may
// be on their way at once.
template <bool traced, unsigned depth = 1>
class Phases {
 public:
  __device__ explicit Phases(const ps::kit::TraceBuffer<traced>& buffer)
      : trace_(buffer),
        roles_{trace_.role(0, first()), trace_.role(1, first()), trace_.role(2, first()),
               trace_.role(3, first())} {
    trace_.begin(first());
    last_ = roles_[0].now();
  }
  Phases(const Phases&) = delete;
  Phases& operator=(const Phases&) = delete;
  __device__ ~Phases() { trace_.end(first()); }

  // The phase is over, once `result` is there. It began where the last one ended.
  __device__ void end(Phase phase) {
    if constexpr (traced) {
      if (!first()) return;
      const Moment start = last_;
      last_ = SmSource::now();
      roles_[static_cast<unsigned>(phase)].record(turn_, start, last_);
      if (phase == Phase::store) ++turn_;
    }
  }
  template <class Result>
  __device__ const Result& end(Phase phase, const Result& result) {
    if constexpr (traced) {
      if (first()) wait_for(result);
    }
    end(phase);
    return result;
  }

  // A load that other phases come before the end of: from ask() until it is known to have landed,
  // which may be later than it did. Loads land in order.
  __device__ void ask(unsigned stage) {
    if constexpr (traced) {
      if (first()) asked(stage) = SmSource::now();
    }
  }
  template <class... Result>
  __device__ void landed(unsigned stage, const Result&... results) {
    if constexpr (traced) {
      if (!first()) return;
      (wait_for(results), ...);
      last_ = SmSource::now();
      roles_[0].record(landed_++, asked(stage), last_);
    }
  }

 private:
  using SmSource = ps::kit::SmSource;
  using Role = ps::kit::RoleTrace<traced, SmSource>;
  using Moment = typename Role::Moment;

  __device__ static bool first() { return threadIdx.x == 0 && threadIdx.y == 0; }
  __device__ static Moment& asked(unsigned stage) {
    __shared__ Moment moments[depth];
    return moments[stage];
  }

  ps::kit::Trace<traced> trace_;
  Role roles_[4];
  Moment last_;
  unsigned turn_ = 0, landed_ = 0;
};

}  // namespace ladder
