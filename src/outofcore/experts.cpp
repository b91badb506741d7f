#include "penstock/outofcore/experts.h"

#include "host/fork.h"
#include "outofcore/expert_feeder.h"

namespace ps {

StreamedExperts::StreamedExperts(StreamedExpertsOptions options)
    : StreamedExperts(std::move(options), detail::ExpertHooks{}) {}

StreamedExperts::StreamedExperts(StreamedExpertsOptions options, detail::ExpertHooks hooks)
    : feeder_(std::make_unique<detail::ExpertFeeder>(std::move(options), std::move(hooks))) {}

StreamedExperts::~StreamedExperts() {
  // In a forked child, its thread is the parent's.
  if (detail::forked()) [[maybe_unused]]
    const auto* kept = feeder_.release();
}
StreamedExperts::StreamedExperts(StreamedExperts&&) noexcept = default;
StreamedExperts& StreamedExperts::operator=(StreamedExperts&&) noexcept = default;

std::size_t StreamedExperts::least_bytes(const ExpertShape& shape, std::size_t pinned,
                                         std::size_t calls_in_flight, bool compressed) {
  const std::size_t slots =
      pinned + detail::least_expert_slots(static_cast<std::size_t>(shape.experts));
  return slots * ExpertStore::block_bytes(shape) +
         detail::ExpertCalls::device_bytes(calls_in_flight, shape.experts) +
         (compressed ? detail::ExpertStaging::device_bytes(shape) : 0);
}

void StreamedExperts::forward(std::int64_t layer, const MoeOptions& call, const Stream& stream) {
  feeder_->forward(layer, call, stream);
}
void StreamedExperts::prefetch(std::int64_t layer, std::span<const std::int32_t> experts) {
  feeder_->prefetch(layer, experts);
}
void StreamedExperts::prefetch(std::int64_t layer, const TensorView& ids, const Stream& stream) {
  feeder_->prefetch(layer, ids, stream);
}
void StreamedExperts::clear() { feeder_->clear(); }
void StreamedExperts::check() { feeder_->check(); }
void StreamedExperts::synchronize() { feeder_->synchronize(); }
void StreamedExperts::close() { feeder_->close(); }
ExpertStatistics StreamedExperts::statistics() const { return feeder_->statistics(); }
std::vector<ExpertCallRecord> StreamedExperts::records() const { return feeder_->records(); }
std::size_t StreamedExperts::slots() const { return feeder_->slots(); }
std::size_t StreamedExperts::device_bytes() const { return feeder_->device_bytes(); }

}  // namespace ps
