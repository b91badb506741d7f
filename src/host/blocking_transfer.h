// Waits for one transfer.
#pragma once

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>

#include "penstock/host/storage.h"

namespace ps::detail {

// Calls `start` with a TransferDone, waits until that is called, and throws what it was given.
template <class Start>
void blocking_transfer(const Start& start) {
  struct Answer {
    std::mutex mutex;
    std::condition_variable given;
    bool over = false;
    std::exception_ptr failure;
  };
  // Shared: the other thread may still be leaving the mutex when this one has its answer.
  const auto answer = std::make_shared<Answer>();
  start([answer](std::exception_ptr failure) {
    const std::lock_guard lock(answer->mutex);
    answer->failure = std::move(failure);
    answer->over = true;
    answer->given.notify_one();
  });
  std::unique_lock lock(answer->mutex);
  answer->given.wait(lock, [&] { return answer->over; });
  if (answer->failure) std::rethrow_exception(std::exchange(answer->failure, nullptr));
}

}  // namespace ps::detail
