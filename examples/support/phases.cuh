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
#include <new>

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
// be on their way at once. What it has to keep lies in shared memory: the kernel needs its
// registers.
template <bool traced, unsigned depth = 1>
class Phases {
 public:
  __device__ explicit Phases(const ps::kit::TraceBuffer<traced>& buffer) {
    if constexpr (traced) {
      if (first()) new (&state()) State(buffer);
    }
  }
  Phases(const Phases&) = delete;
  Phases& operator=(const Phases&) = delete;
  __device__ ~Phases() {
    if constexpr (traced) {
      if (first()) state().~State();
    }
  }

  // The phase is over, once `result` is there. It began where the last one ended.
  __device__ void end(Phase phase) {
    if constexpr (traced) {
      if (first()) state().end(phase);
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

  // What follows belongs to another turn. A store ends one by itself.
  __device__ void end_turn() {
    if constexpr (traced) {
      if (first()) ++state().turn;
    }
  }

  // A load that other phases come before the end of: from ask() until it is known to have landed,
  // which may be later than it did. Loads land in order.
  __device__ void ask(unsigned slot) {
    if constexpr (traced) {
      if (first()) state().asked[slot] = SmSource::now();
    }
  }
  __device__ void landed(unsigned slot) {
    if constexpr (traced) {
      if (first()) state().end_load(slot);
    }
  }
  template <class Result>
  __device__ void landed(unsigned slot, const Result& result) {
    if constexpr (traced) {
      if (first()) wait_for(result);
    }
    landed(slot);
  }

 private:
  using SmSource = ps::kit::SmSource;
  using Role = ps::kit::RoleTrace<true, SmSource>;

  struct State {
    ps::kit::Trace<true> trace;
    Role roles[4];
    Role::Moment last, asked[depth];
    unsigned turn = 0, loads = 0;

    __device__ explicit State(const ps::kit::TraceBuffer<true>& buffer)
        : trace(buffer),
          roles{trace.role(0, true), trace.role(1, true), trace.role(2, true),
                trace.role(3, true)} {
      trace.begin(true);
      last = SmSource::now();
    }
    __device__ ~State() { trace.end(true); }

    __device__ void end(Phase phase) {
      const Role::Moment start = last;
      last = SmSource::now();
      roles[static_cast<unsigned>(phase)].record(turn, start, last);
      if (phase == Phase::store) ++turn;
    }
    __device__ void end_load(unsigned slot) {
      last = SmSource::now();
      roles[0].record(loads++, asked[slot], last);
    }
  };

  __device__ static bool first() { return threadIdx.x == 0 && threadIdx.y == 0; }
  __device__ static State& state() {
    __shared__ __align__(16) unsigned char memory[sizeof(State)];
    return *reinterpret_cast<State*>(memory);
  }
};

}  // namespace ladder
