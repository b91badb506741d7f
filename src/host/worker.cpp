#include "host/worker.h"

#include <thread>
#include <utility>

namespace ps::detail {
namespace {
// Tells drain() whether it was called by the worker it would wait for.
thread_local const void* worker_of_this_thread = nullptr;
}  // namespace

Worker::Worker(Task first) : state_(std::make_shared<State>()) { state_->first = std::move(first); }

Worker::~Worker() {
  const std::lock_guard lock(state_->mutex);
  state_->closing = true;
  state_->changed.notify_one();
}

void Worker::post(Task task) {
  const std::lock_guard lock(state_->mutex);
  if (!state_->started) {
    // Detached: the thread owns its state, so neither a destructor nor exit() waits for user code.
    std::thread([state = state_] { loop(*state); }).detach();
    state_->started = true;
  }
  state_->tasks.push_back(std::move(task));
  ++state_->posted;
  state_->changed.notify_one();
}

void Worker::drain(State& state) {
  if (worker_of_this_thread == &state) return;
  std::unique_lock lock(state.mutex);
  const std::uint64_t target = state.posted;
  state.drained.wait(lock, [&] { return state.finished >= target; });
}

bool Worker::idle() {
  const std::lock_guard lock(state_->mutex);
  return state_->finished == state_->posted;
}

void Worker::loop(State& state) {
  worker_of_this_thread = &state;
  if (state.first) state.first();
  std::unique_lock lock(state.mutex);
  for (;;) {
    state.changed.wait(lock, [&] { return !state.tasks.empty() || state.closing; });
    if (state.tasks.empty()) return;
    {
      // What the task holds is dropped before it counts as finished.
      const Task task = std::move(state.tasks.front());
      state.tasks.pop_front();
      lock.unlock();
      task();
    }
    lock.lock();
    ++state.finished;
    state.drained.notify_all();
  }
}

}  // namespace ps::detail
