#include "host/available_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

namespace ps::detail {
namespace {

constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();

// The number in a file that holds nothing else; nothing for "max" or if there is no such file.
std::optional<std::size_t> number_in(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::size_t value = 0;
  if (!(in >> value)) return std::nullopt;
  return value;
}

// The sum of the values of the lines "key value" whose key is one of these.
std::size_t sum_of(const std::filesystem::path& file, const std::string& first,
                   const std::string& second) {
  std::ifstream in(file);
  std::size_t sum = 0, value = 0;
  for (std::string key; in >> key >> value;) {
    if (key == first || key == second) sum += value;
  }
  return sum;
}

std::size_t available_in_system(const std::filesystem::path& root) {
  std::ifstream info(root / "proc/meminfo");
  for (std::string key, line; info >> key; std::getline(info, line)) {
    std::size_t kibibytes = 0;
    if (key == "MemAvailable:" && info >> kibibytes) return kibibytes * 1024;
  }
  return unlimited;
}

// What one group leaves: its limit less what it uses, where cached files do not count as used.
std::size_t available_in_group(const std::filesystem::path& group, bool v2) {
  const auto limit = number_in(group / (v2 ? "memory.max" : "memory.limit_in_bytes"));
  const auto used = number_in(group / (v2 ? "memory.current" : "memory.usage_in_bytes"));
  if (!limit || !used) return unlimited;
  const std::string prefix = v2 ? "" : "total_";
  const std::size_t files =
      sum_of(group / "memory.stat", prefix + "inactive_file", prefix + "active_file");
  const std::size_t taken = *used - std::min(*used, files);
  return *limit - std::min(*limit, taken);
}

}  // namespace

std::size_t available_memory(const std::filesystem::path& root) {
  std::size_t available = available_in_system(root);
  // Lines such as "0::/a/b" (version 2) or "9:memory:/a/b" (version 1).
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool v2 = controllers.empty();
    if (!v2 && controllers != "memory") continue;
    const std::filesystem::path base = root / (v2 ? "sys/fs/cgroup" : "sys/fs/cgroup/memory");
    // Limits of all groups above this one hold too. In a container, its own group is the base.
    std::filesystem::path path = std::filesystem::path(line.substr(second + 1)).relative_path();
    for (;; path = path.parent_path()) {
      available = std::min(available, available_in_group(base / path, v2));
      if (path.empty()) break;
    }
  }
  return available;
}

}  // namespace ps::detail
