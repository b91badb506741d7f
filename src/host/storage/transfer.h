// A piece of a file in flight, and who moves it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include "host/storage/open_file.h"
#include "penstock/base/error.h"
#include "penstock/host/storage.h"

namespace ps::detail {

// What the pieces of one transfer share. Calls `done` when the last piece has ended.
class Transfer {
 public:
  Transfer(TransferDone done, ReadOptions options)
      : priority(options.priority), done_(std::move(done)), stop_(std::move(options.stop)) {}

  const ReadPriority priority;

  void add_piece() { ++pieces_; }
  // The first failure counts. After the last piece this calls `done`.
  void piece_over(std::exception_ptr failure) noexcept;

  bool cancelled() const { return stop_.stop_requested(); }
  // Calls `react` when the transfer is cancelled, on the thread that cancels it. Without a lock
  // that `react` takes, because this and the end of the transfer wait for it.
  void when_cancelled(std::function<void()> react) {
    if (stop_.stop_possible()) on_stop_.emplace(stop_, std::move(react));
  }

 private:
  TransferDone done_;
  std::atomic<std::size_t> pieces_{1};  // one for whoever cuts it, until all are handed over
  std::mutex mutex_;
  std::exception_ptr failure_;
  const std::stop_token stop_;
  std::optional<std::stop_callback<std::function<void()>>> on_stop_;
};

struct Piece {
  std::shared_ptr<Transfer> transfer;
  std::shared_ptr<const OpenFile> file;
  int fd = -1;
  bool write = false;
  std::uint64_t offset = 0;
  std::byte* data = nullptr;
  std::size_t bytes = 0;

  // After a system call moved `moved` bytes or failed with -errno: true when nothing is left to do,
  // and then the transfer knows; false when the rest is still to be moved.
  bool advance(std::int64_t moved) noexcept;
  // Ends a piece of a cancelled transfer that was not started.
  void drop() noexcept;

 private:
  SystemError error(std::int64_t moved) const;
  void end(std::exception_ptr failure) noexcept;
};

// For tests: says what a system call for this piece has answered, given what it answered. Null, as
// it usually is, changes nothing.
using TransferHook = std::int64_t (*)(const Piece& piece, std::int64_t moved);
void set_transfer_hook(TransferHook hook);

// Moves pieces. Its threads own it and end by themselves, after close() and the last piece.
class TransferEngine {
 public:
  TransferEngine() = default;
  TransferEngine(const TransferEngine&) = delete;
  TransferEngine& operator=(const TransferEngine&) = delete;
  virtual ~TransferEngine() = default;
  virtual FileEngine kind() const = 0;
  // Throws when it cannot be queued, and then nothing was.
  virtual void submit(Piece piece) = 0;
  // Drops the waiting pieces of cancelled transfers soon, on a thread of the engine.
  virtual void drop_cancelled() = 0;
  // No piece is submitted any more. Does not wait.
  virtual void close() = 0;
};

std::shared_ptr<TransferEngine> make_thread_engine(std::size_t in_flight);
// Null, with why, where io_uring cannot be had.
std::shared_ptr<TransferEngine> make_uring_engine(std::size_t in_flight, std::string& why);

}  // namespace ps::detail
