// The expert layer of a mixture-of-experts model, forward: SwiGLU experts, fused so that gathering
// tokens, the activation and adding up the experts' results need no passes over memory of their
// own.
//
//   out[t] = sum over k of weights[t, k] * down[e] (silu(gate[e] x[t]) * (up[e] x[t])),
//            where e = ids[t, k]
//
//   ps::moe({.x = x, .gate_up = gate_up, .down = down, .ids = ids, .weights = weights,
//            .out = out, .pool = &pool}, stream);
//
// Products are accumulated in f32. The input of the down-projection and its result are rounded to
// the type of x, as PyTorch does. The sum over k is computed in f32, in the order of k.
#pragma once

#include <cstddef>
#include <cstdint>

#include "penstock/base/view.h"
#include "penstock/host/pool.h"
#include "penstock/host/stream.h"

namespace ps {

// How the rows of gate and up are stored in `gate_up`.
enum class GateUpLayout : std::uint8_t {
  concatenated,  // n rows of gate, then n rows of up, as transformers stores them
  interleaved,   // gate 0, up 0, gate 1, up 1, ...
};

// The kernels of the two products on a GPU; ignored on the CPU. All give the same bits.
enum class MoeKernel : std::uint8_t {
  best,        // loads, products and stores overlap
  sequential,  // one after the other, to measure what overlapping them gains
};

struct MoeOptions {
  TensorView x{};        // (T, d), bf16 or f16; on the CPU also f32. Rows may be strided
  TensorView gate_up{};  // (S, 2n, d), the type of x
  TensorView down{};     // (S, d, n), the type of x
  TensorView ids{};      // (T, K), i32 or i64, contiguous: the experts of every token
  TensorView weights{};  // (T, K), f32, bf16 or f16, contiguous
  TensorView out{};      // (T, d), the type of x. Rows may be strided

  // (E), i32: where expert e is in `gate_up` and `down`, their first index; any value that is not
  // in [0, S) means that the expert is not there. Read on the stream. Without it, S is E and expert
  // e is at index e.
  TensorView slots{};

  GateUpLayout layout = GateUpLayout::concatenated;

  // moe_workspace_bytes() bytes on the stream's device, aligned to 256, on the CPU to 64, that
  // nothing else uses until the call's work is done. If empty, moe() allocates from `pool`.
  MemoryView workspace{};
  const Pool* pool = nullptr;

  // If set, the result of a token is the same whatever other tokens are in the batch. If not,
  // results are still the same bits for the same call, but a later version may use a faster kernel
  // for some batch sizes.
  bool batch_invariant = false;

  MoeKernel kernel = MoeKernel::best;

  // Waits for the ids and throws InvalidArgument for a negative one. Without it, a negative id is
  // skipped like an id of E or more.
  bool check = false;
};

// The bytes of workspace that a call with views of these shapes needs. Only the shapes and types of
// x, gate_up, ids and slots are read. Throws InvalidArgument as moe() does.
std::size_t moe_workspace_bytes(const MoeOptions& options);

// Computes `out`. Any T, including 0. d and n are multiples of 8, and on a GPU rows and slots begin
// at multiples of 16 bytes. K is 1 to 16, E at most 1024. An id of E or more, and an expert that is
// not there, adds nothing.
//
// Enqueues and returns, without waiting for the device unless `check` is set; may be captured
// unless `check` is set. The same call gives the same bits every time. Throws InvalidArgument
// naming the argument, OutOfMemory, and Unsupported on GPUs that are not of compute capability 9.0.
void moe(const MoeOptions& options, const Stream& stream);

// The steps of moe(), for experts that arrive one after the other:
//
//   moe_plan(options, stream);      // sorts the tokens by expert; reads ids
//   moe_experts(options, stream);   // computes the experts that are in `slots` now; repeat with
//                                   // other slots and weights
//   moe_combine(options, stream);   // adds up; reads weights, writes out
//
// All calls use the same workspace, which must be given, and the same x, ids, weights and out. E,
// d, n and the types must be the same in all calls; S and the layout may change. If each expert is
// computed in one of the calls, the result has the bits of one moe() with all of them. Experts that
// no call computes add nothing. Each step throws as moe() does.
void moe_plan(const MoeOptions& options, const Stream& stream);
void moe_experts(const MoeOptions& options, const Stream& stream);
void moe_combine(const MoeOptions& options, const Stream& stream);

}  // namespace ps
