// StreamedExperts on the experts that a measurement has made.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>

#include "measure/experts/traced_steps.h"
#include "measure/experts/work.h"
#include "penstock/host/stream.h"
#include "penstock/outofcore/disk_expert_store.h"
#include "penstock/outofcore/experts.h"

namespace ps::detail {

class StreamedWork {
 public:
  // With room for `slots` experts, or as many as it needs at least; from a disk, with as much in
  // host memory. A trace has at most `traced` calls. Throws OutOfMemory.
  StreamedWork(const ExpertWork& work, std::size_t slots, std::size_t traced);

  // Calls all layers; `call` makes the call of a layer. Blocks until they are done.
  void run(const std::function<MoeOptions(std::int64_t layer)>& call);
  // The same for what `run` does, and adds its calls to the timeline.
  void trace(Timeline& timeline, const std::function<void()>& run);

  void empty_cache() { experts_->clear(); }  // that on the device
  ExpertStatistics statistics() const { return experts_->statistics(); }
  std::size_t loaded() const;        // experts
  std::uint64_t read_bytes() const;  // from a disk
  std::size_t slots() const;

 private:
  const ExpertWork& work_;
  const Stream stream_;
  const std::shared_ptr<TracedSteps> steps_;
  std::optional<DiskExpertStore> disk_;
  std::optional<StreamedExperts> experts_;
};

}  // namespace ps::detail
