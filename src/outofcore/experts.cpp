#include "penstock/outofcore/experts.h"

#include <string>

#include "host/fork.h"
#include "outofcore/expert_feeder.h"
#include "penstock/base/error.h"

namespace ps {

// The input of the down-projection and its result are rounded to the type, and may be rounded to
// the neighbouring number on the other side: together a few steps of the type. Sums in f32 differ
// by far less, unless the type is f32 itself.
double host_experts_tolerance(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return 4 * 0x1p-8;
    case DType::f16:
      return 4 * 0x1p-11;
    case DType::f32:
      return 64 * 0x1p-23;
    default:
      detail::throw_invalid("dtype", "bf16, f16 or f32", std::string(name(dtype)));
  }
}

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
