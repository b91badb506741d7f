// What a stream and a host thread tell each other about a call of moe() in steps: which experts
// have rows, in which slots they are, and the rows of experts that the host computed. Both sides
// use page-locked memory.
#pragma once

#include <cstdint>

#include "ops/moe/work.h"
#include "penstock/base/view.h"
#include "penstock/host/device.h"
#include "penstock/host/stream.h"
#include "penstock/ops/moe.h"

namespace ps::detail {

// Where a stream writes the number of rows of each expert. It sets *flag to `value` afterwards.
struct MoeRouting {
  std::uint32_t* rows = nullptr;  // (E)
  std::uint32_t* flag = nullptr;
  std::uint32_t value = 0;
  // For a host that computes experts too; null if it does not.
  void* x = nullptr;            // (T, d), aligned to 16 bytes
  std::int32_t* ids = nullptr;  // (T, K); -1 for ids of no expert
};

// The rows y of pairs that the host computed.
struct MoeHostRows {
  const std::int32_t* place = nullptr;  // (T, K): the row of each pair in y, or -1
  const void* y = nullptr;              // (rows, d), aligned to 16 bytes
};

// Publishes the rows that moe_plan() counted, with the same options; and x and ids if `to` has
// room for them.
void moe_publish_rows(const MoeOptions& options, const MoeRouting& to, const Stream& stream);

// Publishes how often each of `experts` experts occurs among `ids`, (T, K) of i32 or i64 and
// contiguous.
void moe_publish_ids(const TensorView& ids, std::int64_t experts, const MoeRouting& to,
                     const Stream& stream);

// Loads the kernels of moe_publish_ids(), for both types of ids, for a thread that must not wait
// for the device when it launches them; see kit::LoadKernels.
void moe_load_publish_ids(const Device& device);

// Copies the slots of E experts for a moe_experts() that follows. On a GPU a kernel does it: a copy
// of few bytes would wait for the copies of experts that are queued on the same copy engine.
void moe_take_slots(const std::int32_t* from, const TensorView& slots, const Stream& stream);

// Copies rows that the host computed to the workspace of the call, for a moe_combine() that
// follows.
void moe_take_rows(const MoeOptions& options, const MoeHostRows& from, const Stream& stream);

// Loads the kernels of moe_take_slots(), moe_take_rows(), moe_experts() and moe_combine() with
// these options, for a stream that will wait for a flag before them; see kit::LoadKernels. Enqueues
// nothing.
void moe_load_kernels(const MoeOptions& options, const Stream& stream);

// For work of a GPU.
void moe_publish_rows_gpu(const MoeWork& work, const MoeRouting& to, const Stream& stream);
void moe_take_rows_gpu(const MoeWork& work, const MoeHostRows& from, const Stream& stream);
void moe_publish_ids_gpu(const TensorView& ids, std::int64_t experts, const MoeRouting& to,
                         const Stream& stream);
void moe_load_publish_ids_gpu(const Device& device);
void moe_take_slots_gpu(const std::int32_t* from, const TensorView& slots, const Stream& stream);
void moe_load_kernels_gpu(const MoeOptions& options, const Stream& stream);

}  // namespace ps::detail
