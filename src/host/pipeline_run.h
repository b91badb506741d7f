// One run of a pipeline: a fixed number of items, the first failure ends it. The thread that called
// run() enqueues every device stage. Where there are no host stages it also follows completions,
// since it has nothing better to do when the window is full (pipeline_follow.cpp).
#pragma once

#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>

#include "host/executor.h"
#include "penstock/host/pipeline.h"

namespace ps::detail {

class PipelineRun final : public Executor {
 public:
  PipelineRun(StageGraph& graph, const RunOptions& options);

  RunReport run();

  bool stopping(std::uint64_t item) override;

 private:
  struct Failure {
    std::size_t stage;
    std::uint64_t item;
    std::exception_ptr cause;
  };

  void failed(std::size_t stage, std::uint64_t item, std::exception_ptr cause) noexcept override;
  void set_done(std::uint64_t done) override;
  void set_pace(std::uint64_t items_done);
  bool complete() const { return done_ == items_; }
  bool all_enqueued() const;

  void submit_all();
  void follow(std::unique_lock<std::mutex>& lock);
  void follow_half_window(std::unique_lock<std::mutex>& lock);
  bool look(std::unique_lock<std::mutex>& lock);
  bool reach(const Event& done, std::uint64_t target);
  std::int64_t pause_until_next_look() const;
  void wait_for_change(std::unique_lock<std::mutex>& lock);
  bool progress_due() const;
  void report_progress(std::unique_lock<std::mutex>& lock);
  void settle() noexcept;
  RunReport report(std::uint64_t allocations) const;

  const RunOptions& options_;
  std::int64_t submit_cpu_ns_ = 0;
  std::int64_t last_progress_ns_ = 0;

  // Guarded by the mutex.
  std::int64_t done_ns_ = 0;  // when done_ last grew
  std::int64_t item_ns_ = 0;  // how long an item takes: from one completion to the next
  bool cancelled_ = false;
  std::optional<Failure> failure_;
};

}  // namespace ps::detail
