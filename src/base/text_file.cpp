#include "penstock/base/text_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>

#include "penstock/base/error.h"

namespace ps {
namespace {

// A file descriptor that closes itself.
class Descriptor {
 public:
  Descriptor(int fd, const std::string& path) : fd_(fd), path_(path) {}
  ~Descriptor() { close(fd_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  std::string read_all(std::size_t largest) const {
    std::string text;
    std::array<char, 65536> buffer;
    while (text.size() <= largest) {
      const ssize_t got = ::read(fd_, buffer.data(), buffer.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw SystemError(errno, "read", path_);
      if (got == 0) return text;
      text.append(buffer.data(), static_cast<std::size_t>(got));
    }
    throw SystemError(EFBIG, "read", path_);
  }

  void write_all(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t put = ::write(fd_, text.data(), text.size());
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) throw SystemError(errno, "write", path_);
      text.remove_prefix(static_cast<std::size_t>(put));
    }
    if (fsync(fd_) != 0) throw SystemError(errno, "flush", path_);
  }

  void set_mode(mode_t mode) const {
    if (fchmod(fd_, mode) != 0) throw SystemError(errno, "set the mode of", path_);
  }

 private:
  int fd_;
  const std::string& path_;
};

}  // namespace

std::string read_text(const std::filesystem::path& path, std::size_t largest) {
  const std::string name = path.string();
  // A pipe without a writer is not waited for.
  const int fd = open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) throw SystemError(errno, "open", name);
  const Descriptor file(fd, name);
  return file.read_all(largest);
}

void write_text(const std::filesystem::path& path, std::string_view text) {
  std::string temporary = path.string() + ".XXXXXX";
  const int fd = mkostemp(temporary.data(), O_CLOEXEC);
  if (fd < 0) throw SystemError(errno, "create", temporary);
  try {
    const Descriptor out(fd, temporary);
    out.write_all(text);
    out.set_mode(0644);
    if (rename(temporary.c_str(), path.c_str()) != 0) {
      throw SystemError(errno, "replace", path.string());
    }
  } catch (...) {
    unlink(temporary.c_str());
    throw;
  }
}

}  // namespace ps
