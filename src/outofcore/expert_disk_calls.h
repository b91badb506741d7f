// Calls of StreamedExperts on the CPU device whose experts are on a disk. They are computed in the
// slots of the store's cache, in groups: first those that are there, then the others as they
// arrive.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "host/first_error.h"
#include "outofcore/calls_in_flight.h"
#include "outofcore/expert_order.h"
#include "outofcore/expert_steps.h"
#include "penstock/outofcore/disk_expert_store.h"
#include "penstock/outofcore/experts.h"

namespace ps::detail {

class ExpertDiskCalls {
 public:
  // `error` takes the first error of calls; calls end early when `cancelled` is set. Whoever owns
  // `calls` waits for them before this object goes.
  ExpertDiskCalls(const StreamedExpertsOptions& options, std::shared_ptr<ExpertSteps> steps,
                  CallsInFlight& calls, FirstError& error, const std::atomic<bool>& cancelled);

  void forward(std::int64_t layer, MoeOptions options, const Stream& stream);
  void prefetch(std::int64_t layer, std::span<const std::int32_t> experts) const noexcept;
  void prefetch(std::int64_t layer, const TensorView& ids, const Stream& stream);
  ExpertStatistics statistics() const;
  std::vector<ExpertCallRecord> records() const;

 private:
  struct Call;
  struct Arriving;
  void compute(const Call& call);
  void compute_group(const Call& call, const std::vector<Arriving>& group);
  std::vector<std::int32_t> needed_by(const Call& call) const;
  void read_ahead(const Call& call);
  void count(const ExpertCallRecord& record, bool failed);

  const DiskExpertStore& store_;
  const ExpertShape shape_;
  const ExpertPrefetch prefetch_;
  const std::size_t most_records_;
  const std::shared_ptr<ExpertSteps> steps_;
  CallsInFlight& calls_;
  FirstError& error_;
  const std::atomic<bool>& cancelled_;

  // Held while a call is computed. A call uses all cores; and two calls that take slots one by one
  // could wait for each other.
  std::mutex computing_;
  Stream inner_;  // of the products
  std::vector<std::int32_t> map_;
  ExpertOrder order_;
  std::vector<std::vector<std::int32_t>> last_needed_;  // by layer

  mutable std::mutex mutex_;
  ExpertStatistics statistics_;
  std::deque<ExpertCallRecord> records_;
};

}  // namespace ps::detail
