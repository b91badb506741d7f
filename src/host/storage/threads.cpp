// Pieces moved by threads, one system call at a time each.
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <thread>
#include <utility>

#include "host/storage/transfer.h"

namespace ps::detail {
namespace {

// Owned by the engine and by every thread of it.
struct State {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Piece> queue;
  std::size_t threads = 0;
  std::size_t idle = 0;  // threads that wait, or are about to
  bool closing = false;
};

std::int64_t move(const Piece& piece) {
  const auto offset = static_cast<off_t>(piece.offset);
  const ssize_t moved = piece.write ? pwrite(piece.fd, piece.data, piece.bytes, offset)
                                    : pread(piece.fd, piece.data, piece.bytes, offset);
  return moved < 0 ? -errno : moved;
}

void loop(State& state) {
  std::unique_lock lock(state.mutex);
  for (;;) {
    state.changed.wait(lock, [&] { return state.closing || !state.queue.empty(); });
    if (state.queue.empty()) return;
    Piece piece = std::move(state.queue.front());
    state.queue.pop_front();
    --state.idle;
    lock.unlock();
    while (!piece.advance(move(piece))) {
    }
    lock.lock();
    ++state.idle;
  }
}

class ThreadEngine final : public TransferEngine {
 public:
  explicit ThreadEngine(std::size_t in_flight) : most_(in_flight) {}

  ~ThreadEngine() override {
    const std::lock_guard lock(state_->mutex);
    state_->closing = true;
    state_->changed.notify_all();
  }

  FileEngine kind() const override { return FileEngine::threads; }

  void submit(Piece piece) override {
    const std::lock_guard lock(state_->mutex);
    // Started as they are needed; with one at least the work goes on when no more can be had.
    if (state_->idle <= state_->queue.size() && state_->threads < most_) {
      try {
        std::thread([state = state_] { loop(*state); }).detach();
        ++state_->threads;
        ++state_->idle;
      } catch (...) {
        if (state_->threads == 0) throw;
      }
    }
    state_->queue.push_back(std::move(piece));
    state_->changed.notify_one();
  }

 private:
  const std::size_t most_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace

std::unique_ptr<TransferEngine> make_thread_engine(std::size_t in_flight) {
  return std::make_unique<ThreadEngine>(in_flight);
}

}  // namespace ps::detail
