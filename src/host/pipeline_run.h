// One run of a pipeline. Progress is a pair of counters per stage: items `started` (a device stage
// has enqueued them, a host stage has begun them) and items `finished`. Stages take items in order,
// so "is item i ready for stage S" is a few comparisons, however many items there are.
//
// Threads: the caller enqueues every device stage; each host stage has a thread. Completions on the
// device are followed by the caller where there are no host stages, since it has nothing better to
// do when the window is full; beside host stages, and with Waiting::block, by a thread for each
// stage whose completions the host must learn (pipeline_follow.cpp).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "host/device_clock.h"
#include "host/failure.h"
#include "host/pipeline_graph.h"

namespace ps::detail {

class PipelineRun;

// What the copies of a Completion share.
class Ending {
 public:
  Ending(std::shared_ptr<PipelineRun> run, std::size_t stage, std::uint64_t item);
  ~Ending();
  Ending(const Ending&) = delete;
  Ending& operator=(const Ending&) = delete;

  void begin();     // from here on the run waits for it
  void call_off();  // the item is not begun after all
  void tell(std::exception_ptr cause) noexcept;

 private:
  const std::shared_ptr<PipelineRun> run_;
  const std::size_t stage_;
  const std::uint64_t item_;
  std::int64_t begin_ns_ = 0;
  std::atomic<bool> told_{false};
};

class PipelineRun final : public FailureSink, public std::enable_shared_from_this<PipelineRun> {
 public:
  PipelineRun(PipelineImpl& graph, const RunOptions& options);

  RunReport run();

  // From Item.
  MemoryView slot(std::size_t stage, std::uint64_t item, RingId ring) const;
  const Stream& stream(std::size_t stage) const;
  MemoryView scratch(std::size_t stage, std::uint64_t item, std::size_t bytes, StageId until);
  bool stopping();

  void fail(std::size_t stage, std::uint64_t item, std::exception_ptr cause) noexcept override;

  // From Ending: an item of a host stage is over; `cause` says why it failed, if it did.
  void end(std::size_t stage, std::uint64_t item, std::int64_t begin_ns,
           std::exception_ptr cause) noexcept;

 private:
  struct Count {
    std::uint64_t started = 0, finished = 0;
  };
  // Of a host stage, whose items may end in another order than they began.
  struct Async {
    std::vector<bool> ended;  // per item of the window
    std::uint64_t under_way = 0;
  };
  struct Failure {
    std::size_t stage;
    std::uint64_t item;
    std::exception_ptr cause;
  };

  bool ready(std::size_t stage, std::uint64_t item) const;
  bool slot_in_use(std::size_t stage, std::uint64_t item) const;
  void count_finished(std::size_t stage, std::uint64_t finished);
  bool complete() const { return done_ == options_.items; }
  bool all_enqueued() const;
  std::uint64_t finished_by(std::size_t stage);  // takes the mutex
  void open_window();
  void set_pace(std::uint64_t items_done);
  bool limited() const { return ahead_ < graph_.window; }
  void wake_enqueuer();
  void stop();

  void start_host_stages();
  void start_completion_threads();
  void submit_all();
  bool submit_round(std::unique_lock<std::mutex>& lock);
  void enqueue(std::size_t stage, std::uint64_t item);
  void host_loop(std::size_t stage);
  void completion_loop(std::size_t stage);
  bool followed(const Stage& stage) const;
  bool has_thread(const Stage& stage) const { return threads_follow_ && followed(stage); }
  void follow(std::unique_lock<std::mutex>& lock);
  void follow_half_window(std::unique_lock<std::mutex>& lock);
  bool look(std::unique_lock<std::mutex>& lock);
  bool reach(const Event& done, std::uint64_t target);
  std::int64_t pause_until_next_look() const;
  void account(std::size_t stage, std::uint64_t finished);
  void harvest(std::size_t stage, std::uint64_t item);
  void wait_for_change(std::unique_lock<std::mutex>& lock);
  bool progress_due() const;
  void report_progress(std::unique_lock<std::mutex>& lock);
  void settle() noexcept;
  RunReport report(std::uint64_t allocations) const;

  PipelineImpl& graph_;
  const RunOptions& options_;
  const bool times_device_;
  std::optional<Event> after_;
  std::optional<DeviceClock> clock_;
  bool any_host_stage_ = false, threads_follow_ = false;
  bool polls_ = false;  // there are device stages whose completions no thread follows
  std::int64_t begin_ns_ = 0, submit_cpu_ns_ = 0;
  std::int64_t last_progress_ns_ = 0;

  // Enqueuing thread only: scratch to be freed by a stage, per item in flight.
  std::vector<std::vector<std::vector<MemoryView>>> kept_;

  mutable std::mutex mutex_;
  // Each woken only by what it waits for: a wake-up costs more than enqueuing a stage.
  std::condition_variable enqueuer_, host_stages_, completions_;
  std::vector<Count> counts_;
  std::vector<Async> async_;
  std::uint64_t done_ = 0;       // items that every stage has finished
  std::int64_t done_ns_ = 0;     // when that number last grew
  std::int64_t changed_ns_ = 0;  // when a device stage last started or finished an item
  std::int64_t item_ns_ = 0;     // how long an item takes: from one completion to the next
  std::uint64_t open_ = 0;       // items before this one may be in flight
  // Items that a device stage may have enqueued and not finished. Two at least, and at first: one
  // runs while the next one waits.
  std::uint64_t ahead_ = 2;
  std::vector<std::uint64_t> exhausted_;  // per stage
  bool stop_ = false, cancelled_ = false, submitted_all_ = false;
  bool woken_ = false;  // something changed since the enqueuing thread last looked
  std::optional<Failure> failure_;

  std::vector<std::jthread> threads_;
};

}  // namespace ps::detail
