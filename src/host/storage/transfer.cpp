#include "host/storage/transfer.h"

#include <fmt/format.h>

#include <cerrno>
#include <utility>

#include "penstock/base/error.h"

namespace ps::detail {

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
  std::exception_ptr failure;
  if (moved > 0) {
    offset += static_cast<std::uint64_t>(moved);
    data += moved;
    bytes -= static_cast<std::size_t>(moved);
    if (bytes > 0) return false;
  } else if (moved == -EINTR || moved == -EAGAIN) {
    return false;
  } else if (moved == -EINVAL && fd == transfer->file->direct) {
    fd = transfer->file->cached;  // some file systems take O_DIRECT and refuse the transfer
    return false;
  } else {
    try {
      const int error = moved < 0 ? static_cast<int>(-moved) : (write ? EIO : ENODATA);
      const std::string where = moved < 0
                                    ? fmt::format("{} at byte {}", transfer->file->path, offset)
                                    : fmt::format("{}, which ends at byte {}, {} bytes too early",
                                                  transfer->file->path, offset, bytes);
      failure = std::make_exception_ptr(SystemError(error, write ? "write" : "read", where));
    } catch (...) {
      failure = std::current_exception();
    }
  }
  std::exchange(transfer, nullptr)->piece_over(std::move(failure));
  return true;
}

}  // namespace ps::detail
