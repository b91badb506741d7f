// A call of route() with checked arguments, and the ways to run it.
#pragma once

#include <cstdint>

#include "penstock/base/dtype.h"
#include "penstock/host/stream.h"
#include "penstock/ops/route.h"

namespace ps::detail {

inline constexpr int route_most_experts = 512;
inline constexpr int route_most_choices = 16;
inline constexpr int route_most_groups = 32;

// That logits are (T, E), of a type and a number of experts that routing takes.
void check_route_logits(const TensorView& view);

struct RouteWork {
  std::int64_t tokens = 0;  // T
  int experts = 0;          // E
  int choices = 0;          // K
  int groups = 1, top_groups = 1;
  RouteScoring scoring = RouteScoring::softmax_topk;
  DType logit_type = DType::f32;
  bool wide_ids = false;  // i64, else i32
  bool renormalise = false;
  float scale = 1;

  const void* logits = nullptr;
  std::int64_t logit_row = 0;   // stride, in elements
  const float* bias = nullptr;  // null: none
  void* ids = nullptr;
  float* weights = nullptr;
};

void route_cpu(const RouteWork& work, const Stream& stream);

// On a GPU of compute capability 8.0 or later. Throws DeviceError.
void route_portable(const RouteWork& work, const Stream& stream);

}  // namespace ps::detail
