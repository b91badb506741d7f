#include "host/storage/open_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "penstock/base/error.h"

namespace ps::detail {

OpenFile::OpenFile(const std::filesystem::path& where, OpenOptions options)
    : path(where.string()), mode(options.mode) {
  const int flags = mode == FileMode::read ? O_RDONLY : O_RDWR | O_CREAT | O_TRUNC;
  cached = open(path.c_str(), flags | O_CLOEXEC, 0666);
  if (cached < 0) throw SystemError(errno, "open", path);
  struct stat status{};
  if (fstat(cached, &status) != 0 || S_ISDIR(status.st_mode)) {
    const int error = S_ISDIR(status.st_mode) ? EISDIR : errno;
    close(cached);
    throw SystemError(error, "open", path);
  }
  // Only a file on a disk has something to go past; a refusal means that its file system has none.
  if (options.direct && S_ISREG(status.st_mode)) {
    direct =
        open(path.c_str(), (mode == FileMode::read ? O_RDONLY : O_RDWR) | O_DIRECT | O_CLOEXEC);
  }
}

OpenFile::~OpenFile() {
  if (direct >= 0) close(direct);
  close(cached);
}

FileVersion OpenFile::version() const {
  struct stat status{};
  if (fstat(cached, &status) != 0) throw SystemError(errno, "query the size of", path);
  constexpr std::int64_t second = 1'000'000'000;
  return {.bytes = static_cast<std::uint64_t>(status.st_size),
          .modified_ns = status.st_mtim.tv_sec * second + status.st_mtim.tv_nsec};
}

}  // namespace ps::detail
