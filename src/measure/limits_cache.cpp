#include "penstock/measure/limits_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string>

#include "penstock/base/error.h"

namespace ps {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t largest_file = MiB;

// A file descriptor that closes itself.
class File {
 public:
  File(int fd, const fs::path& path) : fd_(fd), path_(path) {}
  ~File() { close(fd_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  std::string read_all() const {
    std::string text;
    std::array<char, 4096> buffer;
    while (text.size() <= largest_file) {
      const ssize_t got = ::read(fd_, buffer.data(), buffer.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw SystemError(errno, "read", path_.string());
      if (got == 0) return text;
      text.append(buffer.data(), static_cast<std::size_t>(got));
    }
    throw SystemError(EFBIG, "read", path_.string());
  }

  void write_all(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t put = ::write(fd_, text.data(), text.size());
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) throw SystemError(errno, "write", path_.string());
      text.remove_prefix(static_cast<std::size_t>(put));
    }
    if (fsync(fd_) != 0) throw SystemError(errno, "flush", path_.string());
  }

  void set_mode(mode_t mode) const {
    if (fchmod(fd_, mode) != 0) throw SystemError(errno, "set the mode of", path_.string());
  }

 private:
  int fd_;
  const fs::path& path_;
};

// Removes the temporary file unless it became the real one.
void replace_file(const fs::path& file, std::string_view text) {
  std::string temporary = file.string() + ".XXXXXX";
  const int fd = mkostemp(temporary.data(), O_CLOEXEC);
  if (fd < 0) throw SystemError(errno, "create", temporary);
  try {
    const fs::path path = temporary;
    const File out(fd, path);
    out.write_all(text);
    out.set_mode(0644);
    if (rename(temporary.c_str(), file.c_str()) != 0) {
      throw SystemError(errno, "replace", file.string());
    }
  } catch (...) {
    unlink(temporary.c_str());
    throw;
  }
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

bool knows(const Limits& limits, const Device& device, const LimitsRequest& request) {
  const LimitsOptions& wanted = request.measure;
  const auto has = [&](Ceiling ceiling) { return limits.find(ceiling) != nullptr; };
  if (wanted.host && !has(Ceiling::host_copy)) return false;
  if (wanted.device && device.kind() != DeviceKind::cpu && !has(Ceiling::device_copy)) return false;
  if (!wanted.disk) return true;
  return has(Ceiling::disk_read) &&
         (!request.this_directory ||
          limits.directory == fs::absolute(wanted.directory).lexically_normal().string());
}

}  // namespace

fs::path limits_cache_path() {
  if (const std::string folder = variable("PENSTOCK_CACHE"); !folder.empty()) {
    return fs::path(folder) / "limits.json";
  }
  if (const std::string folder = variable("XDG_CACHE_HOME"); !folder.empty()) {
    return fs::path(folder) / "penstock" / "limits.json";
  }
  if (const std::string folder = variable("HOME"); !folder.empty()) {
    return fs::path(folder) / ".cache" / "penstock" / "limits.json";
  }
  return {};
}

std::vector<Limits> load_limits(const fs::path& file) {
  const int fd = open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0 && (errno == ENOENT || errno == ENOTDIR)) return {};
  if (fd < 0) throw SystemError(errno, "open", file.string());
  const File in(fd, file);
  return parse_limits(in.read_all());
}

void save_limits(const fs::path& file, const Limits& limits) {
  std::error_code error;
  fs::create_directories(file.parent_path(), error);
  if (error) throw SystemError(error.value(), "create", file.parent_path().string());
  std::vector<Limits> entries;
  try {
    entries = load_limits(file);
  } catch (const InvalidArgument&) {
    // Nothing in it can be believed, so nothing is lost.
  }
  std::erase_if(entries, [&](const Limits& old) { return old.key == limits.key; });
  entries.push_back(limits);
  replace_file(file, format_limits(entries));
}

LimitsAnswer obtain_limits(const Device& device, const LimitsRequest& request) {
  LimitsAnswer answer;
  const fs::path file = limits_cache_path();
  const auto warn = [&](std::string_view what, const std::exception& error) {
    answer.warnings.push_back(fmt::format("{} {}: {}", what, file.string(), error.what()));
  };

  if (!request.fresh && !file.empty()) {
    try {
      const LimitsKey key = limits_key(device);
      for (Limits& limits : load_limits(file)) {
        if (limits.key == key && knows(limits, device, request)) {
          answer.limits = std::move(limits);
          answer.cached = true;
          return answer;
        }
      }
    } catch (const InvalidArgument& error) {
      warn("measured anew, as the cache is not as expected:", error);
    } catch (const std::system_error& error) {
      warn("measured anew, as the cache cannot be read:", error);
    }
  }

  answer.limits = measure_limits(device, request.measure);
  if (request.keep && !file.empty()) {
    try {
      save_limits(file, answer.limits);
    } catch (const std::system_error& error) {
      warn("the figures are not kept:", error);
    }
  }
  return answer;
}

}  // namespace ps
