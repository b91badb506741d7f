#include "host/cuda/host_calls.h"

#include <atomic>
#include <utility>

#include "host/flag.h"

namespace ps::cuda {

HostCalls::HostCalls(std::shared_ptr<Backend> backend)
    : state_(std::make_shared<State>(std::move(backend))),
      worker_([state = state_] { state->backend->enter_thread(); }) {}

HostCalls::~HostCalls() = default;

HostCalls::State::~State() {
  if (flag == nullptr) return;
  // The GPU may still be reading the flag that the last function raised.
  const Guard guard(*backend);
  Driver& driver = backend->driver();
  const Status status =
      unmarked ? driver.device_synchronize() : driver.event_synchronize(passed->handle());
  if (status != success) driver.last_error();
  backend->free_pinned(flag, sizeof(*flag));
}

std::shared_ptr<EventOwner> HostCalls::State::take_event() {
  {
    const std::lock_guard lock(mutex);
    if (!events.empty()) {
      auto event = std::move(events.back());
      events.pop_back();
      return event;
    }
  }
  // Polled: a stream takes only some fifty records of events that interrupt; the next one waits.
  return std::make_shared<EventOwner>(backend, false, false);
}

void HostCalls::State::give_back(std::shared_ptr<EventOwner> event) {
  const std::lock_guard lock(mutex);
  events.push_back(std::move(event));
}

void HostCalls::State::finish(std::uint32_t number) {
  if (flag != nullptr) detail::set_flag(flag, number);
  const std::lock_guard lock(finished->mutex);
  finished->number = number;
  finished->changed.notify_all();
}

void HostCalls::enqueue(StreamHandle stream, detail::StreamFunction function, bool hold) {
  // One function at a time: the order of events, flags and functions must be the same.
  const std::lock_guard lock(enqueue_mutex_);
  Backend& backend = *state_->backend;
  const Guard guard(backend);
  const bool by_flag = backend.properties().stream_wait_value;
  if (hold && by_flag && state_->flag == nullptr) {
    state_->passed = std::make_shared<EventOwner>(state_->backend, false, false);
    auto* flag = static_cast<std::uint32_t*>(backend.allocate_pinned(sizeof(std::uint32_t)));
    *flag = 0;
    state_->flag = flag;
  }
  std::shared_ptr<EventOwner> reached = state_->take_event();
  backend.check(backend.driver().event_record(reached->handle(), stream), "recording an event");

  if (!hold) {
    worker_.post(
        [state = state_, reached = std::move(reached), function = std::move(function)]() mutable {
          state->run(*reached, function);
          state->give_back(std::move(reached));
        });
    return;
  }
  const std::uint32_t number = ++numbers_;
  const auto holding = std::make_shared<std::atomic<Holding>>(Holding::unknown);
  worker_.post([state = state_, reached = std::move(reached), function = std::move(function),
                holding, number]() mutable {
    holding->wait(Holding::unknown);
    if (*holding == Holding::yes) state->run(*reached, function);
    function = nullptr;
    state->give_back(std::move(reached));
    state->finish(number);  // also after a failure, which may have left the stream waiting
  });
  const auto settle = [&](Holding result) {
    *holding = result;
    holding->notify_one();
  };
  try {
    hold_stream(stream, number);
  } catch (...) {
    settle(Holding::no);
    throw;
  }
  settle(Holding::yes);
}

void HostCalls::State::run(const EventOwner& reached, detail::StreamFunction& function) {
  const Status status = reached.poll();
  std::exception_ptr not_run;
  try {
    backend->check(status, "waiting for the point of a host function");
  } catch (...) {
    not_run = std::current_exception();
  }
  try {
    function(not_run);
  } catch (...) {
    error.set(std::current_exception());
  }
  function = nullptr;  // what it captured goes before anyone hears that it ran
}

void HostCalls::hold_stream(StreamHandle stream, std::uint32_t number) {
  Backend& backend = *state_->backend;
  if (state_->flag != nullptr) {
    backend.check(backend.driver().stream_wait_value(stream, state_->flag, number),
                  "holding a stream for a host function");
    const Status status = backend.driver().event_record(state_->passed->handle(), stream);
    state_->unmarked = status != success;
    backend.check(status, "recording an event");
    return;
  }
  void* key = pending().add(std::make_unique<Held>(Held{state_->finished, number}));
  const Status status = backend.driver().launch_host(stream, &HostCalls::wait_in_callback, key);
  if (status != success) pending().take(key);
  backend.check(status, "holding a stream for a host function");
}

HostCalls::Pending& HostCalls::pending() {
  static auto* const instance = new Pending;  // never destroyed: callbacks may come after main()
  return *instance;
}

void* HostCalls::Pending::add(std::unique_ptr<Held> one) {
  void* key = one.get();
  const std::lock_guard lock(mutex);
  held.emplace(key, std::move(one));
  return key;
}

std::unique_ptr<HostCalls::Held> HostCalls::Pending::take(void* key) {
  const std::lock_guard lock(mutex);
  return std::move(held.extract(key).mapped());
}

// Where the GPU cannot wait on memory, the driver's callback waits; it runs no user code.
void HostCalls::wait_in_callback(void* key) {
  const std::unique_ptr<Held> held = pending().take(key);
  Finished& finished = *held->finished;
  std::unique_lock lock(finished.mutex);
  finished.changed.wait(
      lock, [&] { return static_cast<std::int32_t>(finished.number - held->number) >= 0; });
}

}  // namespace ps::cuda
