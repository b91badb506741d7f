// A stream of the CPU: an ordered queue with a worker thread of its own, so that streams truly run
// beside each other.
#pragma once

#include <memory>

#include "host/backend.h"
#include "host/cpu/event.h"
#include "host/first_error.h"
#include "host/worker.h"

namespace ps::cpu {

class Stream final : public detail::StreamImpl {
 public:
  explicit Stream(std::shared_ptr<detail::Backend> backend) : backend_(std::move(backend)) {}

  void call(detail::StreamFunction function) override;
  void notify(detail::StreamFunction function) override;
  void wait(detail::EventImpl& event) override;
  void record(detail::EventImpl& event) override;
  void synchronize() override;
  void drain() noexcept override { worker_.drain(); }
  bool done() override { return worker_.idle(); }
  void refuse_capture(const char* /*operation*/) override {}
  void rethrow() override { error_->rethrow(); }
  void copy(MemoryView dst, MemoryView src) override;
  void fill(MemoryView dst, std::uint8_t value) override;
  void wait_value(std::uint32_t* flag, std::uint32_t value) override;
  void write_value(std::uint32_t* flag, std::uint32_t value) override;
  bool owned() const override { return true; }
  void* native() const override { return nullptr; }
  detail::Backend& backend() override { return *backend_; }

  detail::Worker::Remainder remainder() const { return detail::Worker::Remainder(worker_); }

 private:
  std::shared_ptr<detail::Backend> backend_;
  // Shared with tasks, which may outlive the last handle.
  std::shared_ptr<detail::FirstError> error_ = std::make_shared<detail::FirstError>();
  detail::Worker worker_;
};

}  // namespace ps::cpu
