// Measures the ceilings of this machine: the transfer rates of its link, memories and disk.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/base/units.h"
#include "penstock/host/device.h"
#include "penstock/host/machine_key.h"
#include "penstock/measure/machine.h"

namespace ps {

enum class Ceiling : std::uint8_t {
  h2d,           // host to device, page-locked memory
  d2h,           // device to host, page-locked memory
  both_ways,     // both at once; bytes of both directions added
  h2d_pageable,  // host to device, ordinary memory
  device_copy,   // within the device; bytes read plus bytes written
  host_copy,     // memcpy on all cores; bytes read plus bytes written
  disk_read,     // O_DIRECT, several blocks in flight
  disk_write,    // O_DIRECT, several blocks in flight; each repetition ends with fdatasync
};

inline constexpr std::array all_ceilings = {
    Ceiling::h2d,         Ceiling::d2h,       Ceiling::both_ways, Ceiling::h2d_pageable,
    Ceiling::device_copy, Ceiling::host_copy, Ceiling::disk_read, Ceiling::disk_write};

std::string_view name(Ceiling ceiling);         // "h2d", as in files
std::string_view description(Ceiling ceiling);  // "host to device, page-locked"

struct Rate {
  double bytes_per_second = 0;  // median over the repetitions
  std::size_t bytes = 0;        // of one repetition, counted as described at Ceiling
  int repetitions = 0;
  std::string note;  // a remark on this figure; often empty
};

struct Limits {
  MachineKey key;
  std::string date;       // when measured, UTC: "2026-11-15T08:30:00Z"
  std::string directory;  // of the disk test; empty if it was not run
  std::map<Ceiling, Rate> rates;

  const Rate* find(Ceiling ceiling) const;  // null if not measured
};

struct LimitsProgress {
  Ceiling ceiling = Ceiling::h2d;  // that is being measured
  double fraction = 0;             // of the whole, 0 to 1
};

struct LimitsOptions {
  bool device = true;    // measure the link and device memory; ignored on the CPU
  bool pageable = true;  // also uploads from pageable memory
  bool host = true;
  bool disk = true;
  std::filesystem::path directory = ".";  // of the disk test

  // Buffers are smaller if memory is short, and the file if the disk is nearly full.
  std::size_t link_bytes = 256 * MiB;
  std::size_t device_bytes = 1 * GiB;
  std::size_t host_bytes = 256 * MiB;
  std::size_t disk_bytes = 1 * GiB;
  double seconds = 0.8;  // per ceiling; twice that for the disk. Determines the repetitions' size
  int repetitions = 9;   // at least 7

  std::stop_token stop;
  std::function<void(const LimitsProgress&)> progress;
};

// A quarter of the time and smaller buffers. Accurate to about 10 %.
LimitsOptions quick_limits();

// Measures the ceilings; on the CPU device only host memory and disk. Blocks until done. The file
// of the disk test is unlinked before it is written, so it is never left behind. Throws
// InvalidArgument naming the option, SystemError naming the path if the disk test cannot write,
// Cancelled, OutOfMemory, DeviceError.
Limits measure_limits(const Device& device, const LimitsOptions& options);

// Problems and advice that follow from the figures.
std::vector<Finding> findings(const Limits& limits, const Machine& machine);

// One object: {"device", "driver", ..., "rates": {"h2d": {"bytes_per_second", ...}, ...}}.
std::string as_json(const Limits& limits);

}  // namespace ps
