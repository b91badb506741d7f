// Rounds the number of tokens of every expert to a multiple of the tile of a matrix product, so
// that no rows are padded: an expert drops its tokens with the smallest weights, or takes tokens
// that did not choose it, those for which its weight would be the largest. This changes the result
// of a layer; it is meant for models that are trained with rounded routes.
//
//   ps::route({.logits = logits, .ids = ids, .weights = weights}, stream);
//   ps::round_routes({.logits = logits, .ids = ids, .weights = weights, .rounded_ids = to_ids,
//                     .rounded_weights = to_weights, .pool = &pool}, stream);
#pragma once

#include <cstddef>
#include <cstdint>

#include "penstock/base/view.h"
#include "penstock/host/pool.h"
#include "penstock/host/stream.h"

namespace ps {

// The scoring function that route() used.
enum class RoundScoring : std::uint8_t {
  softmax,  // RouteScoring::softmax_topk or topk_softmax
  sigmoid,  // RouteScoring::sigmoid
};

struct RoundRoutesOptions {
  TensorView logits{};   // (T, E), f32, bf16 or f16: those that route() had; rows may be strided
  TensorView ids{};      // (T, K), i32 or i64, contiguous: route()'s result
  TensorView weights{};  // (T, K), f32, contiguous: route()'s result

  // (T, P), contiguous, of the types of ids and weights; P is K to 16, and for moe() at most E. The
  // first K places of a token are its choices, with id E and weight 0 where one was dropped.
  // Experts that took the token follow, in the order of their index, then id E and weight 0. With P
  // = K + 4, nearly all experts can round to the nearest multiple if the logits are random; with
  // fewer places, more of them round down.
  TensorView rounded_ids{};
  TensorView rounded_weights{};
  TensorView changes{};  // (E), i32, contiguous: tokens that each expert took, or minus the tokens
                         // it dropped; optional

  std::int64_t tile = 128;  // 1 or more
  RoundScoring scoring = RoundScoring::softmax;

  // round_routes_workspace_bytes() bytes on the stream's device, aligned to 256, on the CPU to 64,
  // that nothing else uses until the call's work is done. If empty, it is allocated from `pool`.
  MemoryView workspace{};
  const Pool* pool = nullptr;
};

// The bytes of workspace for these logits, whose elements are not read. Throws InvalidArgument as
// round_routes() does.
std::size_t round_routes_workspace_bytes(const RoundRoutesOptions& options);

// Rounds each expert's number of tokens to the nearest multiple of `tile`, half a tile upwards.
// Where it cannot round up, it rounds down.
//
//   - Rounding down, the expert drops its tokens with the smallest weights; of equal weights, the
//     later token.
//   - Rounding up, it takes those tokens that did not choose it for which its weight would be the
//     largest; of equal weights, the earlier token. This weight is what route() would have computed
//     with the token's other weights unchanged: weights[t, 0] times the ratio of the exponentials,
//     or sigmoids, of the two logits. Tokens whose weight would be 0, and tokens without any choice,
//     are never taken.
//   - A token has P - K free places. If more experts would take it, the places go to those with the
//     largest weights; of equal weights, to the smaller indices.
//   - An expert rounds down instead of up if too few tokens can be taken, or if one of those that it
//     would take has no free place for it. It then takes none, and a place that it leaves free goes
//     to no other expert.
//
// Weights that stay are not changed. Negative weights compare as 0. E is at most 512 and T less
// than 2^31. The CPU and every GPU give bitwise identical results. Enqueues and returns; may be
// captured. Throws InvalidArgument naming the argument, OutOfMemory, and Unsupported on GPUs below
// compute capability 8.0.
void round_routes(const RoundRoutesOptions& options, const Stream& stream);

}  // namespace ps
