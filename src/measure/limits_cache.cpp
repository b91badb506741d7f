#include "penstock/measure/limits_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string>

#include "penstock/base/error.h"
#include "penstock/base/text_file.h"

namespace ps {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t largest_file = MiB;

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
  std::string text;
  try {
    text = read_text(file, largest_file);
  } catch (const SystemError& error) {
    const int why = error.code().value();
    if (why == ENOENT || why == ENOTDIR) return {};
    throw;
  }
  return parse_limits(text);
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
  write_text(file, format_limits(entries));
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
