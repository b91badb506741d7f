// Ctrl-C and SIGTERM: the first asks to stop, the second kills.
#pragma once

#include <atomic>
#include <csignal>
#include <stop_token>
#include <thread>

namespace ps::cli {

// While alive, the signals wake a thread that triggers the stop token. Make it before any other
// thread: they inherit its signal mask.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  std::stop_token token() const { return source_.get_token(); }

 private:
  void watch();

  std::stop_source source_;
  sigset_t signals_{};
  sigset_t before_{};
  std::atomic<bool> done_ = false;
  std::thread watcher_;
};

}  // namespace ps::cli
