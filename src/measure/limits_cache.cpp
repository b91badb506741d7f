#include "penstock/measure/limits_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/cache_file.h"
#include "penstock/base/error.h"

namespace ps {
namespace {

namespace fs = std::filesystem;

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

fs::path limits_cache_path() { return detail::cache_path("limits.json"); }

std::vector<Limits> load_limits(const fs::path& file) {
  return detail::load_cache(file, parse_limits);
}

void save_limits(const fs::path& file, const Limits& limits) {
  detail::change_cache(file, parse_limits, format_limits, [&](std::vector<Limits>& entries) {
    std::erase_if(entries, [&](const Limits& old) { return old.key == limits.key; });
    entries.push_back(limits);
  });
}

LimitsAnswer obtain_limits(const Device& device, const LimitsRequest& request) {
  LimitsAnswer answer;
  const fs::path file = limits_cache_path();
  const auto warn = [&](std::string_view what, const std::exception& error) {
    answer.warnings.push_back(fmt::format("{} {}: {}", what, file.string(), error.what()));
  };

  if (!request.fresh && !file.empty()) {
    try {
      const MachineKey key = machine_key(device);
      for (Limits& limits : load_limits(file)) {
        if (limits.key == key && knows(limits, device, request)) {
          answer.limits = std::move(limits);
          answer.cached = true;
          return answer;
        }
      }
    } catch (const InvalidArgument& error) {
      warn("measuring again, because the cache is not valid:", error);
    } catch (const std::system_error& error) {
      warn("measuring again, because the cache cannot be read:", error);
    }
  }

  answer.limits = measure_limits(device, request.measure);
  if (request.keep && !file.empty()) {
    try {
      save_limits(file, answer.limits);
    } catch (const std::system_error& error) {
      warn("the results could not be cached:", error);
    }
  }
  return answer;
}

}  // namespace ps
