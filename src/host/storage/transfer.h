// A piece of a file on its way, and who moves it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "penstock/host/storage.h"

namespace ps::detail {

// The descriptors of a file, open for as long as a handle or a transfer needs them.
class OpenFile {
 public:
  OpenFile(const std::filesystem::path& path, FileMode mode, bool direct);
  ~OpenFile();
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  const std::string path;
  const FileMode mode;
  int cached = -1;           // through the page cache
  int direct = -1;           // past it; -1 where the file system refuses that
  std::size_t block = 4096;  // what direct transfers must be aligned to
};

// What the pieces of one read or write share. Calls `done` when the last piece has ended.
class Transfer {
 public:
  Transfer(std::shared_ptr<const OpenFile> of, TransferDone done)
      : file(std::move(of)), done_(std::move(done)) {}

  const std::shared_ptr<const OpenFile> file;

  void add_piece() { ++pieces_; }
  // The first failure counts. After the last piece this calls `done`.
  void piece_over(std::exception_ptr failure) noexcept;

 private:
  TransferDone done_;
  std::atomic<std::size_t> pieces_{1};  // one for whoever cuts it, until all are handed over
  std::mutex mutex_;
  std::exception_ptr failure_;
};

struct Piece {
  std::shared_ptr<Transfer> transfer;
  int fd = -1;
  bool write = false;
  std::uint64_t offset = 0;
  std::byte* data = nullptr;
  std::size_t bytes = 0;

  // After a system call moved `moved` bytes or failed with -errno: true when nothing is left to do,
  // and then the transfer knows; false when the rest is still to be moved.
  bool advance(std::int64_t moved) noexcept;
};

// Its destructor does not wait: its threads end by themselves, after the last piece.
class TransferEngine {
 public:
  TransferEngine() = default;
  TransferEngine(const TransferEngine&) = delete;
  TransferEngine& operator=(const TransferEngine&) = delete;
  virtual ~TransferEngine() = default;
  virtual FileEngine kind() const = 0;
  // Throws when it cannot be queued, and then nothing was.
  virtual void submit(Piece piece) = 0;
};

std::unique_ptr<TransferEngine> make_thread_engine(std::size_t in_flight);
// Null, with why, where io_uring cannot be had.
std::unique_ptr<TransferEngine> make_uring_engine(std::size_t in_flight, std::string& why);

}  // namespace ps::detail
