// One run of a pipeline. Progress is a pair of counters per stage: items `started` (a device stage
// has enqueued them, a host stage has begun them) and items `finished`. Stages take items in order,
// so "is item i ready for stage S" is a few comparisons, however many items there are.
//
// Threads: the caller enqueues every device stage; each host stage has a thread. Completions on the
// device are followed by the caller where there are no host stages, since it has nothing better to
// do when the window is full; beside host stages, by a thread for each stage that is followed.
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
  void stop();

  void start_host_stages();
  void start_completion_threads();
  void submit_all();
  bool submit_round(std::unique_lock<std::mutex>& lock);
  void enqueue(std::size_t stage, std::uint64_t item);
  void host_loop(std::size_t stage);
  void completion_loop(std::size_t stage);
  bool followed(const Stage& stage) const;
  void follow(std::unique_lock<std::mutex>& lock);
  bool reach(const Event& done, std::uint64_t target);
  void account(std::size_t stage, std::uint64_t finished);
  void harvest(std::size_t stage, std::uint64_t item);
  void wait_for_change(std::unique_lock<std::mutex>& lock);
  void report_progress(std::unique_lock<std::mutex>& lock, bool last);
  void settle() noexcept;
  RunReport report(std::uint64_t allocations) const;

  PipelineImpl& graph_;
  const RunOptions& options_;
  const bool times_device_;
  std::optional<Event> after_;
  std::optional<DeviceClock> clock_;
  bool any_host_stage_ = false;
  std::int64_t begin_ns_ = 0, submit_cpu_ns_ = 0;
  std::int64_t last_progress_ns_ = 0;

  // Enqueuing thread only: scratch to be freed by a stage, per item in flight.
  std::vector<std::vector<std::vector<MemoryView>>> kept_;

  mutable std::mutex mutex_;
  // Each woken only by what it waits for: a wake-up costs more than enqueuing a stage.
  std::condition_variable enqueuer_, host_stages_, completions_;
  std::vector<Count> counts_;
  std::vector<Async> async_;
  std::uint64_t done_ = 0;                // items that every stage has finished
  std::int64_t done_ns_ = 0;              // when that number last grew
  std::uint64_t open_ = 0;                // items before this one may be in flight
  std::vector<std::uint64_t> exhausted_;  // per stage
  bool stop_ = false, cancelled_ = false, submitted_all_ = false;
  std::optional<Failure> failure_;

  std::vector<std::jthread> threads_;
};

}  // namespace ps::detail
