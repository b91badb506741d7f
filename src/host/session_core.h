// A session at work. Items come one by one and have tickets, and a failure ends one item. Whoever
// calls push() enqueues device stages if nobody else does; a thread does the same when a host stage
// has finished something. Completions are always followed by threads.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "host/backend.h"
#include "host/executor.h"
#include "host/ticket.h"
#include "penstock/host/session.h"

namespace ps::detail {

class SessionCore final : public Executor {
 public:
  // The graph is prepared and outlives close().
  SessionCore(StageGraph& graph, Recorder* recorder, WhenExhausted when_full);

  void start();
  // Cancels what has not started, waits for the rest, and ends all tickets.
  void close() noexcept;

  // `passed_over`: stages that the item does not need, one bit each.
  std::shared_ptr<TicketState> push(Payload payload, std::uint64_t passed_over);
  void join(const std::shared_ptr<TicketState>& ticket, const Stream& stream);
  bool cancel(TicketState& ticket);
  void cancel_all();
  void drain();
  std::uint64_t pushed() const;
  std::uint64_t retired() const;

  const Payload& payload(std::uint64_t item) const override;
  bool stopping(std::uint64_t item) override;

  // Throws inside a stage function of this session, where `call` would wait for itself.
  void refuse_inside(const char* call) const;

 private:
  struct LateFailure {
    std::size_t stage;
    std::uint64_t item;
    std::exception_ptr cause;
  };

  void failed(std::size_t stage, std::uint64_t item, std::exception_ptr cause) noexcept override;
  bool passes_over(std::size_t stage, std::uint64_t item) override;
  void enqueued(std::size_t stage, std::uint64_t item) override;
  void after_progress() noexcept override;

  // With the mutex held.
  TicketState* in_flight(std::uint64_t item) const;  // null when it has ended
  bool all_started(std::uint64_t item, std::uint64_t except) const;
  bool cancel_locked(TicketState& ticket);
  void wait_for_room(std::unique_lock<std::mutex>& lock);
  void enqueue_ready(std::unique_lock<std::mutex>& lock, std::uint64_t until);
  std::uint64_t enqueued_by_all() const;
  void retire(std::unique_lock<std::mutex>& lock) noexcept;
  std::uint64_t wait_for_events(const TicketState& ticket, const Stream& stream);
  bool hold_by_signals(TicketState& ticket, const Stream& stream, std::uint64_t stages);
  void refuse_own_stream(std::uint64_t item, const Stream& stream) const;

  void enqueue_loop();
  void finish(TicketState& ticket) noexcept;

  const WhenExhausted when_full_;
  std::vector<std::size_t> last_stages_;               // no stage comes after these
  std::vector<std::unique_ptr<SignalImpl>> signals_;   // of the last stages; null where unsupported
  std::vector<std::shared_ptr<TicketState>> tickets_;  // per item in flight
  std::uint64_t retired_ = 0;                          // items whose tickets are done
  std::condition_variable room_;                       // retired_ or retiring_ has changed
  std::condition_variable idle_;                       // enqueuing_ has become false
  bool enqueuing_ = false, retiring_ = false, closed_ = false;
  std::optional<LateFailure> late_;  // that came when its item was done
};

}  // namespace ps::detail
