#include "measure/experts/streamed.h"

#include <algorithm>
#include <utility>

namespace ps::detail {

StreamedWork::StreamedWork(const ExpertWork& work, std::size_t slots, std::size_t traced)
    : work_(work),
      stream_(work.device()),
      steps_(std::make_shared<TracedSteps>(work.device(), work.shape().experts)) {
  const std::size_t block = work.block_bytes();
  const std::size_t least = StreamedExperts::least_bytes(work.shape());
  StreamedExpertsOptions options{.device = work.device(), .records = traced};
  options.device_bytes = std::max(least, slots * block + least % block);
  if (work.store() == nullptr) {
    disk_.emplace(work.device(), work.path(),
                  DiskExpertStoreOptions{.host_bytes = std::max<std::size_t>(2, slots) * block});
    options.disk = &*disk_;
  }
  options.store = work.store();
  experts_.emplace(std::move(options), ExpertHooks{.steps = steps_});
}

void StreamedWork::run(const std::function<MoeOptions(std::int64_t layer)>& call) {
  for (std::int64_t layer = 0; layer < work_.shape().layers; ++layer) {
    experts_->forward(layer, call(layer), stream_);
  }
  stream_.synchronize();
  experts_->synchronize();
}

void StreamedWork::trace(Timeline& timeline, const std::function<void()>& run) {
  steps_->begin();
  run();
  const Engine loads = work_.device().kind() == DeviceKind::cuda ? Engine::upload : Engine::disk;
  add_calls(timeline, steps_->end(experts_->records()), loads);
}

std::size_t StreamedWork::loaded() const {
  return static_cast<std::size_t>(statistics().bytes) / work_.block_bytes();
}

std::uint64_t StreamedWork::read_bytes() const {
  return disk_ ? disk_->statistics().missed_bytes : 0;
}

std::size_t StreamedWork::slots() const {
  return disk_ && experts_->slots() == 0 ? disk_->slots() : experts_->slots();
}

}  // namespace ps::detail
