// Reads that fail in the middle with EIO, as those of a damaged disk do, whatever the engine.
#pragma once

#include <cerrno>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "host/storage/transfer.h"

namespace ps::test {

// While one exists, reads of byte `at` of files whose path ends in `file` fail; bytes before it are
// read. At most one exists at a time.
class FailingReads {
 public:
  FailingReads(std::string file, std::uint64_t at) {
    const std::lock_guard lock(mutex_);
    file_ = std::move(file);
    at_ = at;
    failures_ = 0;
    detail::set_transfer_hook(answer);
  }
  ~FailingReads() { detail::set_transfer_hook(nullptr); }
  FailingReads(const FailingReads&) = delete;
  FailingReads& operator=(const FailingReads&) = delete;

  int failures() const {
    const std::lock_guard lock(mutex_);
    return failures_;
  }

 private:
  static std::int64_t answer(const detail::Piece& piece, std::int64_t moved) {
    const std::lock_guard lock(mutex_);
    if (moved <= 0 || piece.write || !std::string_view(piece.file->path).ends_with(file_)) {
      return moved;
    }
    if (at_ < piece.offset || at_ >= piece.offset + static_cast<std::uint64_t>(moved)) return moved;
    if (at_ > piece.offset) return static_cast<std::int64_t>(at_ - piece.offset);
    ++failures_;
    return -EIO;
  }

  // Of all: a read may end after the object has.
  static inline std::mutex mutex_;
  static inline std::string file_;
  static inline std::uint64_t at_ = 0;
  static inline int failures_ = 0;
};

}  // namespace ps::test
