// A thread of the library that runs functions in order. It is started by the first function and
// ends by itself: closing never waits, and what was posted still runs.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

namespace ps::detail {

class Worker {
 public:
  using Task = std::function<void()>;  // must not throw

  // `first` runs before every other task, on the thread that runs them.
  explicit Worker(Task first = {});
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void post(Task task);

  // Blocks until everything posted before has run. On the worker's own thread, where it would wait
  // for itself, it returns at once.
  void drain() { drain(*state_); }
  bool idle();

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed, drained;
    Task first;
    std::deque<Task> tasks;
    std::uint64_t posted = 0, finished = 0;
    bool started = false, closing = false;
  };

  static void loop(State& state);
  static void drain(State& state);

  std::shared_ptr<State> state_;

 public:
  // Waits for what was posted even when the worker itself is gone.
  class Remainder {
   public:
    explicit Remainder(const Worker& worker) : state_(worker.state_) {}
    void drain() const {
      if (const auto state = state_.lock()) Worker::drain(*state);
    }
    bool over() const { return state_.expired(); }  // the worker is gone and its thread has ended

   private:
    std::weak_ptr<State> state_;
  };
};

}  // namespace ps::detail
