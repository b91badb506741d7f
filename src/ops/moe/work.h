// A call of moe() with checked arguments, and the ways to run its steps.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/moe/workspace.h"
#include "penstock/base/dtype.h"
#include "penstock/host/stream.h"
#include "penstock/ops/moe.h"

namespace ps::detail {

struct MoeWork {
  std::int64_t tokens = 0;   // T
  std::int64_t choices = 0;  // K
  std::int64_t hidden = 0;   // d
  std::int64_t width = 0;    // n
  std::int64_t experts = 0;  // E
  std::int64_t slot_count = 0;
  DType type = DType::bf16;  // of x, gate_up, down and out
  GateUpLayout layout = GateUpLayout::concatenated;
  MoeKernel kernel = MoeKernel::best;

  const void* x = nullptr;
  std::int64_t x_row = 0;  // strides, in elements
  const void* gate_up = nullptr;
  std::int64_t gate_up_slot = 0, gate_up_row = 0;
  const void* down = nullptr;
  std::int64_t down_slot = 0, down_row = 0;
  const void* ids = nullptr;
  DType id_type = DType::i32;
  const void* weights = nullptr;
  DType weight_type = DType::f32;
  const std::int32_t* slots = nullptr;  // null: expert e is in slot e
  void* out = nullptr;
  std::int64_t out_row = 0;

  MoeWorkspace space{};
  std::byte* memory = nullptr;  // space.bytes, aligned to 256, on the CPU to 64

  std::int64_t rows() const { return tokens * choices; }
};

void moe_plan_cpu(const MoeWork& work, const Stream& stream);
void moe_experts_cpu(const MoeWork& work, const Stream& stream);
void moe_combine_cpu(const MoeWork& work, const Stream& stream);

// With `and_experts`, the plan also lists the work items of the experts that are in slots now,
// which saves a launch; moe_experts_gpu() with `planned` must follow.
void moe_plan_gpu(const MoeWork& work, bool and_experts, const Stream& stream);
void moe_experts_gpu(const MoeWork& work, bool planned, const Stream& stream);
void moe_combine_gpu(const MoeWork& work, const Stream& stream);

}  // namespace ps::detail
