// The device work of a call of StreamedExperts. Tests replace it, and record what would be computed
// from which bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "ops/compress/work.h"
#include "ops/moe/cpu.h"
#include "ops/moe/routing.h"
#include "penstock/host/stream.h"
#include "penstock/ops/compress.h"
#include "penstock/ops/moe.h"

namespace ps::detail {

class ExpertSteps {
 public:
  virtual ~ExpertSteps() = default;
  virtual void plan(const MoeOptions& options, const Stream& stream) { moe_plan(options, stream); }
  virtual void publish(const MoeOptions& options, const MoeRouting& to, const Stream& stream) {
    moe_publish_rows(options, to, stream);
  }
  virtual void publish_ids(const TensorView& ids, std::int64_t experts, const MoeRouting& to,
                           const Stream& stream) {
    moe_publish_ids(ids, experts, to, stream);
  }
  // Once, before any call: publish_ids() is launched while streams of other threads may wait for
  // copies that are not enqueued yet.
  virtual void load_publish_ids(const Device& device) { moe_load_publish_ids(device); }
  // Before a wait is enqueued that take_slots(), experts(), take_rows() and combine() are behind.
  virtual void load(const MoeOptions& options, const Stream& stream) {
    moe_load_kernels(options, stream);
  }
  virtual void take_slots(const std::int32_t* from, const TensorView& slots, const Stream& stream) {
    moe_take_slots(from, slots, stream);
  }
  virtual void experts(const MoeOptions& options, const Stream& stream) {
    moe_experts(options, stream);
  }
  // The experts of the pairs that have ids, on the threads behind `ranges`.
  virtual void on_host(const MoeWork& work, const mixture::Ranges& ranges) {
    mixture::sort_pairs(work, ranges);
    mixture::compute_experts(work, ranges);
  }
  virtual void take_rows(const MoeOptions& options, const MoeHostRows& from, const Stream& stream) {
    moe_take_rows(options, from, stream);
  }
  virtual void combine(const MoeOptions& options, const Stream& stream) {
    moe_combine(options, stream);
  }
  // Once, before anything waits for what decompress() writes.
  virtual void load_decompress(const Device& device) { detail::load_decompress(device); }
  virtual void decompress(const DecompressOptions& options, const Stream& stream) {
    ps::decompress(options, stream);
  }
};

struct ExpertHooks {
  std::shared_ptr<ExpertSteps> steps = std::make_shared<ExpertSteps>();
  // Whether experts are copied to slots on the CPU device too.
  bool copy_on_cpu = false;
  // How long a hint by ids waits for the call that probably follows it.
  std::int64_t hint_wait_ns = 1'000'000;
};

}  // namespace ps::detail
