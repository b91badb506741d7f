#include "measure/machine_host.h"

#include <linux/io_uring.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <string_view>
#include <system_error>
#include <thread>

namespace ps::detail {
namespace {

namespace fs = std::filesystem;

constexpr int cap_ipc_lock = 14;

std::string_view trimmed(std::string_view text) {
  const auto blank = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

template <class Number>
std::optional<Number> number(std::string_view text, int base = 10) {
  text = trimmed(text);
  Number value{};
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (text.empty() || result.ec != std::errc{}) return std::nullopt;
  return value;  // what follows the digits, such as " kB", is not ours
}

// The rest of the first line that starts with `key`, after its separator; empty when there is none.
std::string field(const fs::path& file, std::string_view key, char separator) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const std::size_t split = line.find(separator);
    if (split != std::string::npos && trimmed(std::string_view(line).substr(0, split)) == key) {
      return std::string(trimmed(std::string_view(line).substr(split + 1)));
    }
  }
  return {};
}

std::string first_line(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

std::size_t meminfo(const fs::path& root, std::string_view key, std::size_t unit) {
  const std::string text = field(root / "proc/meminfo", key, ':');
  return number<std::size_t>(text).value_or(0) * unit;
}

std::string os_name(const fs::path& root) {
  std::string name = field(root / "etc/os-release", "PRETTY_NAME", '=');
  std::erase(name, '"');
  return name;
}

// The names of a folder's entries; none when it cannot be read.
std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    found.push_back(it->path());
  }
  return found;
}

int numa_nodes(const fs::path& root) {
  const auto nodes = entries(root / "sys/devices/system/node");
  const auto count = std::count_if(nodes.begin(), nodes.end(), [](const fs::path& path) {
    const std::string name = path.filename().string();
    return name.starts_with("node") && number<int>(name.substr(4)).has_value();
  });
  return std::max(1, static_cast<int>(count));
}

int nvidia_functions(const fs::path& root) {
  const auto devices = entries(root / "sys/bus/pci/devices");
  return static_cast<int>(std::count_if(devices.begin(), devices.end(), [](const fs::path& path) {
    // Class 0x03....: display controllers; an NVIDIA network card or bridge is no GPU.
    return first_line(path / "vendor") == "0x10de" &&
           first_line(path / "class").starts_with("0x03");
  }));
}

std::optional<std::size_t> memory_limit(const fs::path& root, std::size_t memory_bytes) {
  for (const char* file :
       {"sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    const auto limit = number<std::size_t>(first_line(root / file));
    if (limit && *limit < memory_bytes) return limit;
  }
  return std::nullopt;
}

// "always [madvise] never": the one in brackets is in force.
std::string bracketed(std::string_view text) {
  const std::size_t open = text.find('['), close = text.find(']');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) return {};
  return std::string(text.substr(open + 1, close - open - 1));
}

bool may_lock_memory(const fs::path& root) {
  const auto effective = number<std::uint64_t>(field(root / "proc/self/status", "CapEff", ':'), 16);
  return effective && (*effective >> cap_ipc_lock & 1U) != 0;
}

std::optional<std::size_t> memlock_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return std::nullopt;
  }
  return limit.rlim_cur;
}

// Allowed or not depends on kernel, sysctl, seccomp and security modules: only trying tells.
int try_io_uring() {
  io_uring_params parameters{};
  const long fd = syscall(SYS_io_uring_setup, 4, &parameters);
  if (fd < 0) return errno;
  close(static_cast<int>(fd));
  return 0;
}

}  // namespace

HostSystem read_host(const fs::path& root) {
  utsname kernel{};
  uname(&kernel);

  HostSystem host;
  host.os = os_name(root);
  host.kernel = kernel.release;
  host.cpu = field(root / "proc/cpuinfo", "model name", ':');
  if (host.cpu.empty()) host.cpu = kernel.machine;  // some architectures do not name their model
  host.cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  host.numa_nodes = numa_nodes(root);
  host.memory_bytes = meminfo(root, "MemTotal", 1024);
  host.available_bytes = meminfo(root, "MemAvailable", 1024);
  host.memory_limit_bytes = memory_limit(root, host.memory_bytes);
  host.memlock_bytes = memlock_limit();
  host.memlock_exempt = may_lock_memory(root);
  host.huge_page_bytes = meminfo(root, "Hugepagesize", 1024);
  host.huge_pages = meminfo(root, "HugePages_Total", 1);
  host.huge_pages_free = meminfo(root, "HugePages_Free", 1);
  host.transparent_huge_pages =
      bracketed(first_line(root / "sys/kernel/mm/transparent_hugepage/enabled"));
  host.io_uring_built_in = PENSTOCK_WITH_URING != 0;
  host.io_uring_error = try_io_uring();
  host.io_uring_disabled = number<int>(first_line(root / "proc/sys/kernel/io_uring_disabled"));
  host.nvidia_functions = nvidia_functions(root);
  return host;
}

}  // namespace ps::detail
