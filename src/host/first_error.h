// Keeps the first exception until somebody asks for it.
#pragma once

#include <exception>
#include <mutex>
#include <utility>

namespace ps::detail {

class FirstError {
 public:
  void set(std::exception_ptr error) noexcept {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
  }

  void rethrow() {
    std::exception_ptr error;
    {
      const std::lock_guard lock(mutex_);
      error = std::exchange(error_, nullptr);
    }
    if (error) std::rethrow_exception(error);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
};

}  // namespace ps::detail
