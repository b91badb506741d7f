// Host functions at points of a stream. An event marks the point; a thread of the library waits for
// it and runs the function; the stream is held, where wanted, by a wait on a flag in page-locked
// memory that the thread raises. User code never runs inside a driver callback.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "host/cuda/backend.h"
#include "host/first_error.h"
#include "host/worker.h"

namespace ps::cuda {

class HostCalls {
 public:
  explicit HostCalls(std::shared_ptr<Backend> backend);
  ~HostCalls();
  HostCalls(const HostCalls&) = delete;
  HostCalls& operator=(const HostCalls&) = delete;

  void enqueue(StreamHandle stream, detail::StreamFunction function, bool hold);

  // Blocks until the functions enqueued so far have run.
  void drain() { worker_.drain(); }
  bool idle() { return worker_.idle(); }
  // Throws the first exception of a function, once.
  void rethrow() { state_->error.rethrow(); }

 private:
  // What a driver callback waits for. It holds nothing of the device, so that a callback, which
  // must not call the driver, may be the last to drop it.
  struct Finished {
    std::mutex mutex;
    std::condition_variable changed;
    std::uint32_t number = 0;  // of the last holding function that ran
  };

  // Shared with the worker, which may outlive the stream's last handle.
  struct State {
    explicit State(std::shared_ptr<Backend> b) : backend(std::move(b)) {}
    ~State();
    std::shared_ptr<EventOwner> take_event();
    void give_back(std::shared_ptr<EventOwner> event);
    // Waits until the stream has reached the event, and runs the function.
    void run(const EventOwner& reached, detail::StreamFunction& function);
    void finish(std::uint32_t number);

    std::shared_ptr<Backend> backend;
    detail::FirstError error;
    const std::shared_ptr<Finished> finished = std::make_shared<Finished>();
    std::uint32_t* flag = nullptr;       // what a held stream waits on; page-locked
    std::shared_ptr<EventOwner> passed;  // recorded behind the last such wait
    bool unmarked = false;  // there is a wait that `passed` could not be recorded behind
    std::mutex mutex;
    std::vector<std::shared_ptr<EventOwner>> events;  // not in use
  };
  // Whether the stream waits for a function that is to hold it: the function runs only then.
  enum class Holding : std::uint8_t { unknown, yes, no };
  struct Held {
    std::shared_ptr<Finished> finished;
    std::uint32_t number;
  };
  // Callbacks enqueued and not yet made. A lost device never makes them: then they stay here.
  struct Pending {
    std::mutex mutex;
    std::map<void*, std::unique_ptr<Held>> held;

    void* add(std::unique_ptr<Held> one);
    std::unique_ptr<Held> take(void* key);
  };

  void hold_stream(StreamHandle stream, std::uint32_t number);
  static void wait_in_callback(void* key);
  static Pending& pending();

  std::shared_ptr<State> state_;
  std::uint32_t numbers_ = 0;
  std::mutex enqueue_mutex_;
  detail::Worker worker_;
};

}  // namespace ps::cuda
