// Takes numbered items through the stages of a graph: the part that a run of a Pipeline and a
// Session share. Progress is a pair of counters per stage: items `started` (a device stage has
// enqueued them, a host stage has begun them) and items `finished`. Stages take items in order, so
// "is item i ready for stage S" is a few comparisons, however many items there are.
//
// Threads: one thread at a time enqueues all device stages; which one, the derived class decides.
// Each host stage has a thread. Device stages whose completions the host must learn are followed by
// a thread each, or by the enqueuing thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "host/device_clock.h"
#include "host/failure.h"
#include "host/stage_graph.h"

namespace ps::detail {

class Executor;

// What the copies of a Completion share.
class Ending {
 public:
  Ending(std::shared_ptr<Executor> executor, std::size_t stage);
  ~Ending();
  Ending(const Ending&) = delete;
  Ending& operator=(const Ending&) = delete;

  void begin(std::uint64_t item);  // from here on the executor waits for it
  void tell(std::exception_ptr cause) noexcept;

 private:
  const std::shared_ptr<Executor> executor_;
  const std::size_t stage_;
  std::uint64_t item_ = 0;
  std::int64_t begin_ns_ = 0;
  std::atomic<bool> told_{true};  // nothing to tell before it has begun
};

class Executor : public FailureSink, public std::enable_shared_from_this<Executor> {
 public:
  ~Executor() override = default;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // From Item.
  MemoryView slot(std::size_t stage, std::uint64_t item, RingId ring) const;
  const Stream& stream(std::size_t stage) const;
  MemoryView scratch(std::size_t stage, std::uint64_t item, std::size_t bytes, StageId until);
  virtual const Payload& payload(std::uint64_t item) const;
  virtual bool stopping(std::uint64_t item) = 0;

  void fail(std::size_t stage, std::uint64_t item, std::exception_ptr cause) noexcept final;

  // From Ending: an item of a host stage is over; `cause` says why it failed, if it did.
  void end(std::size_t stage, std::uint64_t item, std::int64_t begin_ns,
           std::exception_ptr cause) noexcept;

 protected:
  // What a failure ends: everything, or only the item. If only the item, the stages that it has not
  // reached pass over it, and threads wait for more items until stop().
  enum class FailureEnds : std::uint8_t { everything, item };

  struct Count {
    std::uint64_t started = 0, finished = 0;
  };
  // Of a host stage, whose items may end in another order than they began.
  struct Async {
    std::vector<bool> ended;  // per item of the window
    std::uint64_t under_way = 0;
  };

  Executor(StageGraph& graph, Recorder* recorder, FailureEnds failure_ends);
  // What derived classes add, all with the mutex held.
  virtual void failed(std::size_t stage, std::uint64_t item, std::exception_ptr cause) noexcept = 0;
  // Whether `stage` passes over `item`: it finishes in its turn without a call of the function.
  virtual bool passes_over(std::size_t /*stage*/, std::uint64_t /*item*/) { return false; }
  // The device stage has started the item; its work is on the stream.
  virtual void enqueued(std::size_t /*stage*/, std::uint64_t /*item*/) {}
  // `done_` becomes `done`.
  virtual void set_done(std::uint64_t done) { done_ = done; }
  // Without the mutex: items may be done that were not when this was last called.
  virtual void after_progress() noexcept {}

  // With the mutex held.
  bool ready(std::size_t stage, std::uint64_t item) const;
  bool slot_in_use(std::size_t stage, std::uint64_t item) const;
  void count_finished(std::size_t stage, std::uint64_t finished);
  void pass_over_host_stages();
  bool limited() const { return ahead_ < graph_.window; }
  void open_window();
  void wake_enqueuer();
  void stop();

  std::uint64_t finished_by(std::size_t stage);  // takes the mutex

  void start_clock();  // for device work that is timed by events
  void start_host_stages();
  void start_completion_threads();
  bool submit_round(std::unique_lock<std::mutex>& lock);
  bool followed(const Stage& stage) const;
  bool has_thread(const Stage& stage) const { return threads_follow_ && followed(stage); }
  void account(std::size_t stage, std::uint64_t finished);
  // Nothing more is enqueued: completion threads end when they have followed what there is.
  void end_submission();
  void wait_for_streams() noexcept;
  void free_scratch() noexcept;

  StageGraph& graph_;
  Recorder* const recorder_;
  const bool times_device_;
  std::optional<Event> after_;  // host stages begin behind it
  bool threads_follow_ = false;
  bool polls_ = false;  // there are device stages whose completions no thread follows
  std::int64_t begin_ns_ = 0;

  mutable std::mutex mutex_;
  // Each woken only by what it waits for: a wake-up costs more than enqueuing a stage.
  std::condition_variable enqueuer_, host_stages_, completions_;
  std::vector<Count> counts_;
  std::uint64_t items_ = 0;      // to be taken through the stages
  std::uint64_t open_ = 0;       // items before this one may be in flight
  std::uint64_t done_ = 0;       // items that every stage has finished
  std::int64_t changed_ns_ = 0;  // when a device stage last started or finished an item
  // Items that a device stage may have enqueued and not finished.
  std::uint64_t ahead_;
  std::vector<std::uint64_t> exhausted_;  // per stage
  bool stop_ = false;
  bool woken_ = false;   // something changed since the enqueuing thread last looked
  bool frozen_ = false;  // host stages count no more items as finished

  std::vector<std::jthread> threads_;

 private:
  void enqueue(std::size_t stage, std::uint64_t item, bool call);
  void host_loop(std::size_t stage);
  std::optional<std::uint64_t> next_host_item(std::size_t stage,
                                              std::unique_lock<std::mutex>& lock);
  std::uint64_t end_host_item(std::size_t stage, std::uint64_t item);
  void completion_loop(std::size_t stage);
  void count(std::size_t stage, std::uint64_t finished);
  void harvest(std::size_t stage, std::uint64_t item);

  const FailureEnds failure_ends_;
  std::optional<DeviceClock> clock_;
  // Enqueuing thread only: scratch to be freed by a stage, per item in flight.
  std::vector<std::vector<std::vector<MemoryView>>> kept_;
  std::vector<Async> async_;  // guarded by the mutex
  bool submission_ended_ = false, passing_over_ = false;
};

}  // namespace ps::detail
