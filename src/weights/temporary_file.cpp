#include "weights/temporary_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "penstock/base/error.h"

namespace ps::detail {

TemporaryFile::TemporaryFile(const std::filesystem::path& path)
    : path_(path.string()), temporary_(path_ + ".XXXXXX") {
  const int fd = mkostemp(temporary_.data(), O_CLOEXEC);
  if (fd < 0) throw SystemError(errno, "create", temporary_);
  const bool readable = fchmod(fd, 0644) == 0;
  const int error = errno;
  close(fd);
  if (!readable) {
    unlink(temporary_.c_str());
    throw SystemError(error, "set the mode of", temporary_);
  }
}

TemporaryFile::~TemporaryFile() {
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

TemporaryFile::TemporaryFile(TemporaryFile&& other) noexcept
    : path_(std::move(other.path_)), temporary_(std::exchange(other.temporary_, {})) {}

void TemporaryFile::rename() {
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0)
    throw SystemError(errno, "replace", path_);
  temporary_.clear();
}

}  // namespace ps::detail
