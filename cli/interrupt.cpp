#include "interrupt.h"

#include <unistd.h>

#include <cstdio>

namespace ps::cli {
namespace {

// A signal that the caller told us to ignore (nohup, a shell's background job) stays ignored.
bool ignored(int signal) {
  struct sigaction action{};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

Interrupt::Interrupt() {
  sigemptyset(&signals_);
  for (const int signal : {SIGINT, SIGTERM}) {
    if (!ignored(signal)) sigaddset(&signals_, signal);
  }
  sigaddset(&signals_, SIGUSR2);  // ends the watcher
  pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  watcher_ = std::thread([this] { watch(); });
}

Interrupt::~Interrupt() {
  done_ = true;
  pthread_kill(watcher_.native_handle(), SIGUSR2);
  watcher_.join();
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void Interrupt::watch() {
  for (;;) {
    int signal = 0;
    if (sigwait(&signals_, &signal) != 0 || done_) return;
    if (signal == SIGUSR2) continue;
    if (source_.request_stop()) {
      if (isatty(STDERR_FILENO) != 0) std::fputs("\npenstock: stopping; once more kills\n", stderr);
      continue;
    }
    // Asked twice: whoever should have stopped does not.
    struct sigaction action{};
    action.sa_handler = SIG_DFL;
    sigaction(signal, &action, nullptr);
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, signal);
    pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
    pthread_kill(pthread_self(), signal);
  }
}

}  // namespace ps::cli
