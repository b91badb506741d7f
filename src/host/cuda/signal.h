// A number in page-locked memory by which a stream waits for another one, or for the host, before
// the event that it would have to wait for is recorded.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

#include "host/cuda/backend.h"

namespace ps::cuda {

class Signal final : public detail::SignalImpl {
 public:
  Signal(std::shared_ptr<Backend> backend, std::uint32_t value);
  ~Signal() override;

  bool serves(detail::StreamImpl& stream) override;
  void wait(detail::StreamImpl& stream, std::uint32_t value) override;
  void write(detail::StreamImpl& stream, std::uint32_t value) override;
  void raise(std::uint32_t value) noexcept override;

 private:
  // An event behind a wait: when it is reached, that stream is done with the memory.
  struct Passed {
    std::shared_ptr<Backend> backend;
    std::shared_ptr<EventOwner> event;
  };

  void mark(const std::shared_ptr<Backend>& backend, void* stream);
  std::shared_ptr<EventOwner> take_event(const std::shared_ptr<Backend>& backend);

  std::shared_ptr<Backend> backend_;
  std::uint32_t* number_;
  std::mutex mutex_;
  std::deque<Passed> passed_;          // the oldest first
  std::shared_ptr<Backend> unmarked_;  // of a stream that no event could be recorded on
};

}  // namespace ps::cuda
