// The expert layer of a mixture-of-experts model, forward: gated experts, fused so that gathering
// tokens, the activation and adding up the experts' results need no passes over memory of their
// own.
//
//   out[t] = sum over k of weights[t, k] * (down[e] act(gate[e] x[t], up[e] x[t])),
//            where e = ids[t, k] and act is silu(gate) * up unless `activation` says otherwise
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

// act(gate, up), computed in f32.
enum class MoeActivation : std::uint8_t {
  swiglu,      // silu(gate) * up
  geglu,       // gelu(gate) * up, with erf
  geglu_tanh,  // gelu(gate) * up, with the approximation by tanh
  // g * sigmoid(alpha * g) * (u + 1), where g is gate, at most `limit`, and u is up, clamped to
  // [-limit, limit]; as in gpt-oss
  clamped_swiglu,
};

// The kernels of the two products on a GPU; ignored on the CPU.
enum class MoeKernel : std::uint8_t {
  best,  // large or decode, whichever suits the rows per expert; portable where they cannot run
  sequential,  // the bits of `large`; loads, products and stores one after the other, to measure
               // what overlapping them gains
  large,       // for compute capability 9.0: many rows per expert
  decode,      // for compute capability 9.0: few rows per expert, bound by reading the weights.
               // Contiguous columns of gate_up must be interleaved. Not with `batch_invariant`
  portable,    // for compute capability 8.0 and later; the only one for f32
};

struct MoeOptions {
  TensorView x{};  // (T, d), bf16, f16 or f32. Rows may be strided
  // The weights have the type of x. Either of their last two dimensions may be the contiguous one:
  // pass weights that are stored as (S, d, 2n) and (S, n, d) as views with swapped strides.
  TensorView gate_up{};  // (S, 2n, d)
  TensorView down{};     // (S, d, n)
  TensorView ids{};      // (T, K), i32 or i64, contiguous: the experts of every token
  TensorView weights{};  // (T, K), f32, bf16 or f16, contiguous
  TensorView out{};      // (T, d), the type of x. Rows may be strided

  // (E), i32: where expert e is in `gate_up` and `down`, their first index; any value that is not
  // in [0, S) means that the expert is not there. Read on the stream. Without it, S is E and expert
  // e is at index e.
  TensorView slots{};

  GateUpLayout layout = GateUpLayout::concatenated;

  // Added to the products in f32, before the activation and before rounding. Optional; the type of
  // x, with a contiguous last dimension.
  TensorView gate_up_bias{};  // (S, 2n), in the order of the rows of gate_up
  TensorView down_bias{};     // (S, d)

  MoeActivation activation = MoeActivation::swiglu;
  float alpha = 1.702F, limit = 7.F;  // of clamped_swiglu

  // An expert of width m that computes every token, in addition to the chosen ones; optional. Its
  // layout and activation are those of the others, and it has no biases. Its result is added last.
  TensorView shared_gate_up{};  // (2m, d), the type of x
  TensorView shared_down{};     // (d, m), the type of x
  TensorView shared_weights{};  // (T), f32, bf16 or f16, contiguous; without it, all are 1

  // moe_workspace_bytes() bytes on the stream's device, aligned to 256, on the CPU to 64, that
  // nothing else uses until the call's work is done. If empty, moe() allocates from `pool`.
  MemoryView workspace{};
  const Pool* pool = nullptr;

  // If set, the result of a token is the same whatever other tokens are in the batch: `best` then
  // never takes `decode`, which does not guarantee it and is refused if named. If not set, the same
  // call still gives the same bits every time.
  bool batch_invariant = false;

  MoeKernel kernel = MoeKernel::best;

  // Waits for the ids and throws InvalidArgument for a negative one. Without it, a negative id is
  // skipped like an id of E or more.
  bool check = false;
};

// The bytes of workspace that a call with views of these shapes needs. Only the shapes and types of
// x, gate_up, ids, slots and shared_gate_up are read. Throws InvalidArgument as moe() does.
std::size_t moe_workspace_bytes(const MoeOptions& options);

// Computes `out`. T may be 0, and T K is below 2^31. d, n and m are multiples of 8; d is at most
// 2^20, n and m at most 2^19. E is at most 1024, S at most 8192; K is at least 1, at most 16 and at
// most E. On a GPU the rows of x, out and the weights (columns, if those are contiguous) begin at
// multiples of 16 bytes, and those of x and out ascend and reach over less than 64 GiB. The number
// of work items, (E + T K / 128) max(2 n, d) / 256, is below 2^31. An id of E or more, and an
// expert that is not there, adds nothing.
//
// Enqueues and returns, without waiting for the device unless `check` is set; may be captured
// unless `check` is set. The same call gives the same bits every time. Throws InvalidArgument
// naming the argument, OutOfMemory, and Unsupported on GPUs of a compute capability below 8.0, or
// that the kernel named does not run on.
void moe(const MoeOptions& options, const Stream& stream);

// The steps of moe(), for experts that arrive one after the other:
//
//   moe_plan(options, stream);      // sorts the tokens by expert; reads ids
//   moe_experts(options, stream);   // computes the experts that are in `slots` now; repeat with
//                                   // other slots and weights
//   moe_combine(options, stream);   // computes the shared expert and adds up; reads weights,
//                                   // writes out
//
// All calls use the same workspace, which must be given, and the same x, ids, weights and out. E,
// d, n and the types must be the same in all calls, and the same dimension of gate_up and of down
// must be contiguous. S may change, and the layout if the rows of gate_up are contiguous. If each
// expert is computed in one of the calls, the result has the bits of one moe() with all of them.
// Experts that no call computes add nothing. Each step throws as moe() does.
void moe_plan(const MoeOptions& options, const Stream& stream);
void moe_experts(const MoeOptions& options, const Stream& stream);
void moe_combine(const MoeOptions& options, const Stream& stream);

}  // namespace ps
