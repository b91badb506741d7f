// Several transfers that complete one item of a pipeline.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <utility>

#include "penstock/host/pipeline.h"
#include "penstock/host/storage.h"

namespace ps::detail {

// Calls `done` once, when all transfers have ended, with the first failure if there was one.
class JoinedTransfers {
 public:
  JoinedTransfers(std::size_t transfers, Completion done)
      : state_(std::make_shared<State>(transfers, std::move(done))) {}

  // The completion to hand to one transfer; call it `transfers` times.
  TransferDone one() const {
    return [state = state_](const std::exception_ptr& failure) {
      if (failure && !state->failed.exchange(true)) state->failure = failure;
      if (state->left.fetch_sub(1) == 1) state->done(state->failure);
    };
  }

 private:
  struct State {
    State(std::size_t transfers, Completion ending) : left(transfers), done(std::move(ending)) {}
    std::atomic<std::size_t> left;
    std::atomic<bool> failed{false};
    std::exception_ptr failure;
    Completion done;
  };
  std::shared_ptr<State> state_;
};

}  // namespace ps::detail
