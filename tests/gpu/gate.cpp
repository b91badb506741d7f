#include "gpu/gate.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace ps::test {

struct Gate::State {
  std::mutex mutex;
  std::condition_variable changed;
  bool open = false;
  bool opened_by_itself = false;

  void hold() {
    std::unique_lock lock(mutex);
    opened_by_itself = !changed.wait_for(lock, std::chrono::seconds(30), [&] { return open; });
    open = true;
  }
};

Gate::Gate(cudaStream_t stream) : state_(std::make_shared<State>()) {
  // The function shares the state: it may run when the gate is gone.
  auto* shared = new std::shared_ptr<State>(state_);
  const auto hold = [](void* data) {
    const std::unique_ptr<std::shared_ptr<State>> state(static_cast<std::shared_ptr<State>*>(data));
    (*state)->hold();
  };
  const cudaError_t status = cudaLaunchHostFunc(stream, hold, shared);
  EXPECT_EQ(status, cudaSuccess);
  if (status != cudaSuccess) delete shared;
}

Gate::~Gate() {
  open();
  const std::lock_guard lock(state_->mutex);
  EXPECT_FALSE(state_->opened_by_itself) << "something waited for work behind a closed gate";
}

void Gate::open() {
  const std::lock_guard lock(state_->mutex);
  state_->open = true;
  state_->changed.notify_all();
}

bool Gate::is_open() const {
  const std::lock_guard lock(state_->mutex);
  return state_->open;
}

}  // namespace ps::test
