// An event of the CPU: a count of the times it was recorded and of the times that was reached.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <utility>

#include "host/backend.h"

namespace ps::cpu {

class Event final : public detail::EventImpl {
 public:
  explicit Event(std::shared_ptr<detail::Backend> backend, bool timing)
      : backend_(std::move(backend)), timing_(timing) {}

  // At enqueue time: the mark a later reach() will fulfil, and the mark to wait for.
  std::uint64_t next_mark();
  std::uint64_t last_mark();
  void reach(std::uint64_t mark);
  void wait_for(std::uint64_t mark);

  bool done() override;
  void synchronize() override;
  double seconds_since(EventImpl& start) override;
  detail::Backend& backend() override { return *backend_; }

 private:
  std::shared_ptr<detail::Backend> backend_;
  bool timing_;
  std::mutex mutex_;
  std::condition_variable reached_changed_;
  std::uint64_t recorded_ = 0, reached_ = 0;
  std::chrono::steady_clock::time_point when_;
};

}  // namespace ps::cpu
