#include "measure/scratch_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "penstock/base/error.h"

namespace ps::detail {

ScratchFile::ScratchFile(const std::filesystem::path& directory) : subject_(directory.string()) {
  std::string name = (directory / "penstock-disk-XXXXXX").string();
  fd_ = mkostemp(name.data(), O_CLOEXEC);
  if (fd_ < 0) throw SystemError(errno, "create a file in", subject_);
  unlink(name.c_str());
  subject_ = "a file in " + subject_;
  // Asked for after creation: open() with O_DIRECT can refuse and leave the file behind.
  direct_ = fcntl(fd_, F_SETFL, O_DIRECT) == 0;
}

ScratchFile::~ScratchFile() {
  if (fd_ >= 0) close(fd_);
}

void ScratchFile::write(const std::byte* data, std::size_t bytes, std::size_t offset) const {
  while (bytes > 0) {
    const ssize_t moved = pwrite(fd_, data, bytes, static_cast<off_t>(offset));
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0) throw SystemError(errno, "write", subject_);
    if (moved == 0) throw SystemError(ENOSPC, "write", subject_);
    data += moved;
    bytes -= static_cast<std::size_t>(moved);
    offset += static_cast<std::size_t>(moved);
  }
}

void ScratchFile::read(std::byte* data, std::size_t bytes, std::size_t offset) const {
  while (bytes > 0) {
    const ssize_t moved = pread(fd_, data, bytes, static_cast<off_t>(offset));
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0) throw SystemError(errno, "read", subject_);
    if (moved == 0) throw SystemError(EIO, "read (the file ended early)", subject_);
    data += moved;
    bytes -= static_cast<std::size_t>(moved);
    offset += static_cast<std::size_t>(moved);
  }
}

void ScratchFile::flush() const {
  while (fdatasync(fd_) != 0) {
    if (errno != EINTR) throw SystemError(errno, "flush", subject_);
  }
}

void ScratchFile::forget() const { posix_fadvise(fd_, 0, 0, POSIX_FADV_DONTNEED); }

void ScratchFile::use_page_cache() {
  fcntl(fd_, F_SETFL, 0);
  direct_ = false;
}

std::size_t ScratchFile::free_bytes() const {
  struct statvfs status{};
  if (fstatvfs(fd_, &status) != 0) throw SystemError(errno, "query the free space of", subject_);
  return static_cast<std::size_t>(status.f_bavail) * status.f_frsize;
}

bool ScratchFile::in_memory() const {
  struct statfs status{};
  if (fstatfs(fd_, &status) != 0) return false;
  const auto type = static_cast<unsigned long>(status.f_type);
  return type == TMPFS_MAGIC || type == RAMFS_MAGIC;
}

}  // namespace ps::detail
