// What the copies of a Ticket share with the session.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <utility>

#include "penstock/host/payload.h"

namespace ps::detail {

class SessionCore;

class TicketState {
 public:
  TicketState(std::weak_ptr<SessionCore> owner, Payload object, std::uint64_t passed)
      : core(std::move(owner)), passed_over(passed), payload(std::move(object)) {}

  bool done() const { return done_.load(std::memory_order_acquire) != 0; }
  void block() const { done_.wait(0, std::memory_order_acquire); }
  void finish() noexcept {
    done_.store(1, std::memory_order_release);
    done_.notify_all();
  }

  const std::weak_ptr<SessionCore> core;
  const std::uint64_t passed_over;  // by which stages, one bit each, as their conditions say
  std::uint64_t index = 0;
  Payload payload;  // until the item is done

  // Guarded by the mutex of the core.
  std::exception_ptr cause;  // of the first failure
  std::size_t failed_stage = 0;
  bool cancelled = false;
  bool ended = false;        // every stage has finished it
  std::uint64_t joined = 0;  // stages whose signals streams wait for, one bit each

  std::exception_ptr error;  // what wait() throws; read when it is done

 private:
  std::atomic<std::uint32_t> done_{0};
};

}  // namespace ps::detail
