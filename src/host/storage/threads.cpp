// Pieces moved by threads, one system call at a time each.
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <thread>
#include <utility>
#include <vector>

#include "host/storage/transfer.h"
#include "host/storage/waiting.h"

namespace ps::detail {
namespace {

std::int64_t move(const Piece& piece) {
  const auto offset = static_cast<off_t>(piece.offset);
  const ssize_t moved = piece.write ? pwrite(piece.fd, piece.data, piece.bytes, offset)
                                    : pread(piece.fd, piece.data, piece.bytes, offset);
  return moved < 0 ? -errno : moved;
}

class ThreadEngine final : public TransferEngine,
                           public std::enable_shared_from_this<ThreadEngine> {
 public:
  explicit ThreadEngine(std::size_t in_flight) : most_(in_flight) {}

  FileEngine kind() const override { return FileEngine::threads; }

  void submit(Piece piece) override {
    const std::lock_guard lock(mutex_);
    // Started as they are needed; with one at least the work goes on when no more can be had.
    if (idle_ <= waiting_.size() && threads_ < most_) {
      try {
        std::thread([self = shared_from_this()] { self->loop(); }).detach();
        ++threads_;
        ++idle_;
      } catch (...) {
        if (threads_ == 0) throw;
      }
    }
    waiting_.push(std::move(piece));
    changed_.notify_one();
  }

  void drop_cancelled() override {
    const std::lock_guard lock(mutex_);
    waiting_.take_cancelled(dropped_);
    changed_.notify_one();
  }

  void close() override {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    changed_.notify_all();
  }

 private:
  void loop() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return closing_ || !waiting_.empty() || !dropped_.empty(); });
      std::vector<Piece> dropped = std::exchange(dropped_, {});
      Piece piece;
      if (dropped.empty()) {
        if (waiting_.empty()) return;
        piece = waiting_.pop();
      }
      --idle_;
      lock.unlock();
      for (Piece& each : dropped) each.drop();
      if (piece.transfer) run(piece);
      lock.lock();
      ++idle_;
    }
  }

  static void run(Piece& piece) {
    if (piece.transfer->cancelled()) return piece.drop();
    while (!piece.advance(move(piece))) {
    }
  }

  const std::size_t most_;
  std::mutex mutex_;  // of everything below
  std::condition_variable changed_;
  WaitingPieces waiting_;
  std::vector<Piece> dropped_;
  std::size_t threads_ = 0;
  std::size_t idle_ = 0;  // threads that wait, or are about to
  bool closing_ = false;
};

}  // namespace

std::shared_ptr<TransferEngine> make_thread_engine(std::size_t in_flight) {
  return std::make_shared<ThreadEngine>(in_flight);
}

}  // namespace ps::detail
