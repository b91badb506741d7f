// Attention, forward: for every sequence, query head and query,
//
//   out[i] = sum over keys j of softmax(scale * q[i] . k[j])[j] * v[j]
//
// without storing the scores.
//
//   ps::attention({.q = q, .k = k, .v = v, .out = out, .causal = true, .pool = &pool}, stream);
//
// Scores and sums are f32. The probabilities of 16-bit types are rounded to the type of q before
// they are multiplied by v, as in other fused kernels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "penstock/base/view.h"
#include "penstock/host/pool.h"
#include "penstock/host/stream.h"

namespace ps {

// The kernels on a GPU; ignored on the CPU. Their results may differ in the last digits. A kernel
// that is named and does not take a call throws InvalidArgument, which says what it does not take.
enum class AttentionKernel : std::uint8_t {
  best,  // decode for at most 16 queries per sequence; else sm90 where it can run; else portable
  portable,  // mma.sync, for compute capability 8.0 and later; takes all calls. f32 without tensor
             // cores
  sm90,      // wgmma, for compute capability 9.0: bf16 and f16 with head dimensions 64, 96, 128,
             // 192 with 128 for v, and 256; strides of rows and heads above 0; a scale above 0,
             // unless there is a softcap; pages of a multiple of 8 rows, without first_k. Calls
             // without any key run portable
  decode,    // for few queries: the keys of a sequence are divided among many thread blocks, for
             // compute capability 8.0 and later; takes all calls. On 9.0 it loads keys and values
             // through tensor maps if sm90 takes their dtype, dimensions, strides and pages; other
             // calls run decode_portable
  decode_portable,  // the same without tensor maps
};

struct AttentionOptions {
  // Sequences of one length: (B, S, H, D), sequences, rows, heads, head dimension. Sequences of
  // several lengths, one after the other: (rows of all sequences, H, D), with `cu_q` or `cu_k`. The
  // last dimension is contiguous, the others may have any strides: pass tensors that are stored as
  // (B, H, S, D) as views with swapped strides.
  TensorView q{};    // Hq heads of dimension D; bf16, f16 or f32
  TensorView k{};    // Hk heads of dimension D; Hq is a multiple of Hk: query head h uses head
                     // h / (Hq / Hk)
  TensorView v{};    // the rows and heads of k, of dimension Dv
  TensorView out{};  // the rows and heads of q, of dimension Dv
  // The logarithm of the sum of exp(score) over the keys of every query, f32, contiguous: (B, Hq,
  // Sq), or (Hq, rows of all sequences) with `cu_q`. Optional.
  TensorView lse{};

  // The last query is at the position of the last key: query i is at the position of key
  // i + (keys - queries) of its sequence. With `causal`, a query attends to no key after its own
  // position. With a window it attends to at most `window_left` keys before its position and
  // `window_right` after it; -1: no limit.
  bool causal = false;
  std::int64_t window_left = -1, window_right = -1;

  float softcap = 0;  // if above 0, a score s becomes softcap * tanh(s / softcap)
  float scale = 0;    // 0: 1 / sqrt(D)
  // (Hq), f32, bf16 or f16, contiguous: for every query head, the score of an additional key with
  // a value of 0; as in gpt-oss. Included in lse. Not scaled and not capped. Optional.
  TensorView sinks{};

  // (B + 1), i32, contiguous: sequence b is rows [cu_q[b], cu_q[b + 1]) of q, or of k and v. Either
  // or both may be given. Read on the stream.
  TensorView cu_q{}, cu_k{};
  // An upper bound of the rows of a sequence; 0: not known, which is the number of rows of q or k.
  // Rows beyond it are ignored, and left as they are in out and lse. Without cu_q, max_q is at
  // least the rows of q.
  std::int64_t max_q = 0, max_k = 0;
  // (B), i32, contiguous: sequence b has only the keys [first_k[b], lengths_k[b]), counted from its
  // first row in k. The rows before them are padding on the left, those behind them padding on the
  // right. The contents of padding, for example NaN, have no effect. Read on the stream. Optional.
  TensorView first_k{}, lengths_k{};

  // (B, most pages of a sequence), i32, for keys and values that are stored in pages: k is (pages,
  // rows of a page, Hk, D), v the same with Dv, of any strides, and row r of sequence b is row
  // r % R of page pages[b][r / R] of R rows. The last dimension is contiguous, the other one has a
  // stride of at least 0. `lengths_k` says how many rows a sequence has; without it, as many as
  // its pages hold. Not together with `cu_k`. Read on the stream. Entries beyond the last row of a
  // sequence are not used.
  TensorView pages{};

  // attention_workspace_bytes() bytes on the stream's GPU, aligned to 256, that nothing else uses
  // until the call's work is done. If empty, attention() allocates from `pool`. The CPU needs none.
  MemoryView workspace{};
  const Pool* pool = nullptr;

  AttentionKernel kernel = AttentionKernel::best;

  // On a GPU, the result of a sequence is bitwise identical whatever other sequences are in the
  // call, if the same kernel runs on the same model of GPU. Only the decode kernels need this
  // option: they then divide each sequence into chunks that depend on its own length alone. `best`
  // chooses the kernel by the rows of q, or with cu_q by `max_q`, which must then be given: pass
  // the same one in all calls whose results are compared.
  bool batch_invariant = false;

  // Waits for cu_q, cu_k, first_k, lengths_k and pages and throws InvalidArgument if lengths
  // decrease or are beyond max_q, max_k or the rows that there are, or if a sequence has a key on a
  // page that does not exist. Without it lengths are clamped, and keys and values on such pages are
  // zeros: a query that attends to them gives them a score of 0. Such a call reads and writes
  // nothing outside its arguments.
  bool check = false;
};

// The bytes of workspace that a call with views of these shapes needs on a GPU. Reads the shapes of
// q, k, v, cu_q, cu_k and pages, the type of q, max_q, max_k, kernel and batch_invariant. Throws
// InvalidArgument as attention() does.
std::size_t attention_workspace_bytes(const AttentionOptions& options);

// Computes `out` and, if given, `lse`. A query without keys gets 0, and -infinity in lse. Rows of q
// that belong to no sequence of cu_q are left as they are in out and lse.
//
// D and Dv are multiples of 8 from 8 to 256. Any B, Sq and Sk, including 0, with fewer than 2^29
// rows. On a GPU rows begin at multiples of 16 bytes.
//
// Enqueues and returns, without waiting for the device unless `check` is set; may be captured
// unless `check` is set. The first call of a kernel loads it, also in a capture: that takes
// milliseconds and may wait for other work on the device. Repeated calls give bitwise identical
// results. `out` and `lse` must not overlap each other or the inputs. Throws InvalidArgument naming
// the argument, OutOfMemory, and Unsupported on GPUs of a compute capability below 8.0, or that the
// kernel named does not run on.
void attention(const AttentionOptions& options, const Stream& stream);

}  // namespace ps
