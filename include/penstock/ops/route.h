// Chooses the experts of every token from the router's logits.
//
//   ps::route({.logits = logits, .ids = ids, .weights = weights}, stream);
//
// The router's projection (x times the router's matrix) is the caller's.
#pragma once

#include <cstdint>

#include "penstock/base/view.h"
#include "penstock/host/stream.h"

namespace ps {

enum class RouteScoring : std::uint8_t {
  softmax_topk,  // softmax over all experts, then the K largest: Qwen3, OLMoE
  topk_softmax,  // the K largest logits, then softmax over these: Mixtral, gpt-oss
  sigmoid,       // sigmoid of each logit, then the K largest of sigmoid + bias: DeepSeek-V3
};

struct RouteOptions {
  TensorView logits{};  // (T, E), f32, bf16 or f16; rows may be strided
  TensorView bias{};    // (E), f32: added to the scores that are compared, not to the weights. Only
                        // with `sigmoid`; optional
  TensorView ids{};     // (T, K), i32 or i64, contiguous: the chosen experts, the best first
  TensorView weights{};  // (T, K), f32, contiguous
  RouteScoring scoring = RouteScoring::softmax_topk;
  // With `sigmoid`, experts may form up to 32 groups of equal size, by index. Experts are then
  // chosen from the `top_groups` groups with the largest sum of their two best compared scores.
  int groups = 1;
  int top_groups = 1;
  bool renormalise = false;  // divides the weights of a token by their sum, unless that is 0
  float scale = 1;           // multiplies the weights, after renormalising; finite
};

// Writes the chosen experts and their weights. K is ids.extent(1): at most 16 and at most E, which
// is at most 512. Scores are computed in f32, in an order that does not depend on the device: the
// CPU and every GPU give the same bits.
//
// With softmax the logits are compared, since softmax keeps their order. If scores are equal, the
// expert with the lower index wins, and likewise the group with the lower index. Logits that are
// NaN or -infinity, and compared scores that a bias makes NaN or -infinity, are never chosen; a
// logit of +infinity counts as the largest finite number. A group with one expert to choose from is
// compared by that expert's score alone. A token with fewer than K experts to choose from gets id E
// and weight 0 in the remaining places; moe() skips such ids.
//
// Enqueues and returns; may be captured. Throws InvalidArgument naming the argument, and
// Unsupported on GPUs below compute capability 8.0.
void route(const RouteOptions& options, const Stream& stream);

}  // namespace ps
