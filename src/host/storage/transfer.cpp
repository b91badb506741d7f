#include "host/storage/transfer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace ps::detail {
namespace {

std::atomic<TransferHook> transfer_hook{nullptr};

}  // namespace

void set_transfer_hook(TransferHook hook) { transfer_hook = hook; }

void Transfer::piece_over(std::exception_ptr failure) noexcept {
  if (failure) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::move(failure);
  }
  if (pieces_.fetch_sub(1) > 1) return;
  // The last piece: nobody else is left to write failure_.
  TransferDone done = std::move(done_);
  done(std::exchange(failure_, nullptr));
}

bool Piece::advance(std::int64_t moved) noexcept {
  if (const TransferHook hook = transfer_hook) moved = hook(*this, moved);
  std::exception_ptr failure;
  if (moved > 0) {
    offset += static_cast<std::uint64_t>(moved);
    data += moved;
    bytes -= static_cast<std::size_t>(moved);
    if (bytes > 0) return false;
  } else if (moved == -EINTR || moved == -EAGAIN) {
    return false;
  } else if (moved == -EINVAL && fd == file->direct) {
    fd = file->cached;  // some file systems take O_DIRECT and refuse the transfer
    return false;
  } else {
    try {
      failure = std::make_exception_ptr(error(moved));
    } catch (...) {
      failure = std::current_exception();
    }
  }
  end(std::move(failure));
  return true;
}

SystemError Piece::error(std::int64_t moved) const {
  const char* const action = write ? "write" : "read";
  if (moved < 0 || write) {
    return {moved < 0 ? static_cast<int>(-moved) : EIO, action,
            fmt::format("{} at byte {}", file->path, offset)};
  }
  // The file may have ended before this piece.
  const std::uint64_t end = std::min(file->version().bytes, offset);
  return {ENODATA, action,
          fmt::format("{}, which ends at byte {}, {} bytes too early", file->path, end,
                      offset + bytes - end)};
}

void Piece::drop() noexcept {
  std::exception_ptr failure;
  try {
    failure = std::make_exception_ptr(
        Cancelled(fmt::format("read {} at byte {}: cancelled", file->path, offset)));
  } catch (...) {
    failure = std::current_exception();
  }
  end(std::move(failure));
}

void Piece::end(std::exception_ptr failure) noexcept {
  file.reset();
  std::exchange(transfer, nullptr)->piece_over(std::move(failure));
}

}  // namespace ps::detail
