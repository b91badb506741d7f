// A call of moe() with checked arguments, and the ways to run its steps.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/moe/workspace.h"
#include "penstock/base/dtype.h"
#include "penstock/host/stream.h"
#include "penstock/ops/moe.h"

namespace ps::detail {

// act(gate, up).
struct MoeGate {
  MoeActivation activation = MoeActivation::swiglu;
  float alpha = 0, limit = 0;  // of clamped_swiglu
};

// The weights of experts. Strides are in elements; the row's or the column's is 1.
struct MoeWeights {
  const void* gate_up = nullptr;
  std::int64_t gate_up_slot = 0, gate_up_row = 0, gate_up_column = 1;
  const void* down = nullptr;
  std::int64_t down_slot = 0, down_row = 0, down_column = 1;
  const void* gate_up_bias = nullptr;  // null: none
  std::int64_t gate_up_bias_slot = 0;
  const void* down_bias = nullptr;  // null: none
  std::int64_t down_bias_slot = 0;

  // Whether the columns of some weights are contiguous instead of their rows.
  bool by_column() const { return gate_up_column != 1 || down_column != 1; }
};

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
  bool batch_invariant = false;

  const void* x = nullptr;
  std::int64_t x_row = 0;  // strides, in elements
  MoeWeights held{};       // the weights of the slots
  MoeGate gate{};
  const void* ids = nullptr;  // null: every pair's expert is 0
  DType id_type = DType::i32;
  const void* weights = nullptr;
  DType weight_type = DType::f32;
  const std::int32_t* slots = nullptr;  // null: expert e is in slot e
  void* out = nullptr;
  std::int64_t out_row = 0;

  MoeWorkspace space{};
  std::byte* memory = nullptr;  // bytes(), aligned to 256, on the CPU to 64

  // The shared expert, if shared_width is not 0. Its workspace follows that of the others.
  std::int64_t shared_width = 0;
  MoeWeights shared{};
  const void* shared_weights = nullptr;  // null: all are 1
  DType shared_weight_type = DType::f32;
  MoeWorkspace shared_space{};

  std::int64_t rows() const { return tokens * choices; }

  // Whether the kernel `decode` takes these weights, those of the slots or of the shared expert.
  bool decodes(const MoeWeights& of) const {
    return of.gate_up_column == 1 || layout == GateUpLayout::interleaved;
  }
  std::size_t bytes() const { return space.bytes + shared_space.bytes; }

  // The shared expert as the only expert of a layer. Nothing reads its weights and out: its results
  // are added up with those of the other experts.
  MoeWork shared_work() const {
    MoeWork work = *this;
    work.choices = work.experts = work.slot_count = 1;
    work.width = shared_width;
    work.held = shared;
    work.ids = nullptr;
    work.slots = nullptr;
    work.space = shared_space;
    work.memory = memory + space.bytes;
    work.shared_width = 0;
    work.shared_space = {};
    return work;
  }
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
