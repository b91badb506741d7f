// An event of a GPU.
#pragma once

#include <atomic>
#include <utility>

#include "host/cuda/backend.h"

namespace ps::cuda {

class Event final : public detail::EventImpl {
 public:
  Event(std::shared_ptr<Backend> backend, const EventOptions& options)
      : backend_(backend),
        timing_(options.timing),
        polled_(options.waiting == Waiting::poll),
        owner_(std::move(backend), options.timing, options.waiting == Waiting::block) {}

  EventHandle handle() const { return owner_.handle(); }
  Backend& cuda() { return *backend_; }
  void mark_recorded(bool captured) {
    captured_ = captured;
    recorded_ = true;
  }

  bool done() override;
  void synchronize() override;
  double seconds_since(EventImpl& start) override;
  detail::Backend& backend() override { return *backend_; }

 private:
  void check_timed(const char* argument);
  // Throws Unsupported, naming the operation, for an event recorded in a capture: CUDA would call
  // the whole capture invalid.
  void refuse_captured(const char* operation);
  // As Backend::check(), with Unsupported for what a capture on another stream forbids.
  void check(Status status, const char* operation, const char* call);

  std::shared_ptr<Backend> backend_;
  bool timing_, polled_;
  std::atomic<bool> recorded_{false}, captured_{false};
  EventOwner owner_;
};

}  // namespace ps::cuda
