#include "penstock/measure/limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "measure/limits_parts.h"
#include "measure/machine_host.h"
#include "penstock/base/error.h"
#include "penstock/measure/build.h"

namespace ps {
namespace {

// The order of measurement: what fails for a reason the caller can mend comes first.
std::vector<Ceiling> plan_of(const Device& device, const LimitsOptions& options) {
  std::vector<Ceiling> plan;
  plan.reserve(all_ceilings.size());
  if (options.disk) plan.insert(plan.end(), {Ceiling::disk_write, Ceiling::disk_read});
  if (options.host) plan.push_back(Ceiling::host_copy);
  if (options.device && device.kind() != DeviceKind::cpu) {
    plan.insert(plan.end(), {Ceiling::h2d, Ceiling::d2h, Ceiling::both_ways});
    if (options.pageable) plan.push_back(Ceiling::h2d_pageable);
    plan.push_back(Ceiling::device_copy);
  }
  return plan;
}

void check(const LimitsOptions& options) {
  const auto at_least = [](std::string_view argument, std::size_t least, std::size_t given) {
    if (given < least) {
      detail::throw_invalid(argument, fmt::format("at least {}", format_bytes(least)),
                            format_bytes(given));
    }
  };
  at_least("options.link_bytes", MiB, options.link_bytes);
  at_least("options.device_bytes", MiB, options.device_bytes);
  at_least("options.host_bytes", MiB, options.host_bytes);
  at_least("options.disk_bytes", MiB, options.disk_bytes);
  if (!(options.seconds > 0) || !(options.seconds <= 3600)) {
    detail::throw_invalid("options.seconds", "more than 0 and at most 3600",
                          fmt::format("{}", options.seconds));
  }
  if (options.repetitions < 7 || options.repetitions > 10'000) {
    detail::throw_invalid("options.repetitions", "7 to 10000",
                          fmt::format("{}", options.repetitions));
  }
}

// Bytes per second of one PCIe lane, after its line code.
double lane_rate(int generation) {
  constexpr std::array rates = {0.25e9, 0.5e9, 0.985e9, 1.969e9, 3.938e9, 7.563e9};
  const auto index = static_cast<std::size_t>(generation - 1);
  return generation >= 1 && index < rates.size() ? rates[index] : 0;
}

}  // namespace

std::string_view name(Ceiling ceiling) {
  switch (ceiling) {
    case Ceiling::h2d:
      return "h2d";
    case Ceiling::d2h:
      return "d2h";
    case Ceiling::both_ways:
      return "both_ways";
    case Ceiling::h2d_pageable:
      return "h2d_pageable";
    case Ceiling::device_copy:
      return "device_copy";
    case Ceiling::host_copy:
      return "host_copy";
    case Ceiling::disk_read:
      return "disk_read";
    case Ceiling::disk_write:
      return "disk_write";
  }
  return "unknown";
}

std::string_view description(Ceiling ceiling) {
  switch (ceiling) {
    case Ceiling::h2d:
      return "host to device, page-locked";
    case Ceiling::d2h:
      return "device to host, page-locked";
    case Ceiling::both_ways:
      return "both ways at once, total";
    case Ceiling::h2d_pageable:
      return "host to device, pageable";
    case Ceiling::device_copy:
      return "device copy, read + write";
    case Ceiling::host_copy:
      return "host copy, read + write";
    case Ceiling::disk_read:
      return "disk read";
    case Ceiling::disk_write:
      return "disk write";
  }
  return "unknown";
}

const Rate* Limits::find(Ceiling ceiling) const {
  const auto found = rates.find(ceiling);
  return found == rates.end() ? nullptr : &found->second;
}

LimitsOptions quick_limits() {
  LimitsOptions options;
  options.link_bytes = 64 * MiB;
  options.device_bytes = 256 * MiB;
  options.host_bytes = 64 * MiB;
  options.disk_bytes = 256 * MiB;
  options.seconds = 0.2;
  options.repetitions = 7;
  return options;
}

Limits measure_limits(const Device& device, const LimitsOptions& options) {
  check(options);
  const std::vector<Ceiling> plan = plan_of(device, options);
  const auto tick = [&](Ceiling ceiling, double fraction) {
    if (options.stop.stop_requested()) throw Cancelled();
    if (!options.progress) return;
    const auto done = std::find(plan.begin(), plan.end(), ceiling) - plan.begin();
    options.progress(
        {ceiling, (static_cast<double>(done) + fraction) / static_cast<double>(plan.size())});
  };

  Limits limits;
  limits.key = machine_key(device);
  limits.date = now_utc();
  if (options.disk) {
    detail::measure_disk(options, tick, limits.rates);
    limits.directory = std::filesystem::absolute(options.directory).lexically_normal().string();
  }
  if (options.host) detail::measure_host(options, tick, limits.rates);
  if (options.device && device.kind() != DeviceKind::cpu) {
    detail::measure_device(device, options, tick, limits.rates);
  }
  return limits;
}

std::vector<Finding> findings(const Limits& limits, const Machine& machine) {
  constexpr double expected_share = 0.6;  // a healthy link gives 0.8 and more
  std::vector<Finding> found;
  const Rate* h2d = limits.find(Ceiling::h2d);
  const auto gpu = std::find_if(machine.gpus.begin(), machine.gpus.end(), [&](const GpuInfo& info) {
    return info.capabilities.name == limits.key.device;
  });
  if (h2d == nullptr || gpu == machine.gpus.end()) return found;
  const Link& link = gpu->capabilities.link;
  const double line =
      lane_rate(link.pcie_max_generation.value_or(0)) * link.pcie_max_width.value_or(0);
  if (h2d->bytes_per_second < expected_share * line) {
    found.push_back(
        {Severity::problem,
         fmt::format("uploads reach {} of the link's {}", format_rate(h2d->bytes_per_second),
                     format_rate(line)),
         "every transfer to the GPU is slower than it could be",
         "find the cores that are close to the GPU and run there: nvidia-smi topo -m; in a virtual "
         "machine, request the full PCIe link of the GPU"});
  }
  return found;
}

namespace detail {

std::size_t affordable(std::size_t wanted, std::size_t available) {
  constexpr std::size_t share = 8, least = 4 * MiB;
  const std::size_t bytes = std::min(wanted, std::max(available / share, least));
  return std::max(bytes / MiB, std::size_t{1}) * MiB;
}

std::size_t available_host_bytes() {
  const HostSystem host = read_host();
  return std::min(host.available_bytes, host.memory_limit_bytes.value_or(host.available_bytes));
}

}  // namespace detail
}  // namespace ps
