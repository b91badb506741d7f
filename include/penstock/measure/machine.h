// What this machine has, what it lacks, and what to type about it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/host/device.h"

namespace ps {

struct HostSystem {
  std::string os;      // "Debian GNU/Linux 12 (bookworm)"
  std::string kernel;  // "6.1.0-18-amd64"
  std::string cpu;     // "AMD EPYC 9334 32-Core Processor"
  int cores = 0;       // logical ones that this process may use
  int numa_nodes = 1;
  std::size_t memory_bytes = 0;
  std::size_t available_bytes = 0;
  std::optional<std::size_t> memory_limit_bytes;  // of the control group, where below memory_bytes

  std::optional<std::size_t> memlock_bytes;  // RLIMIT_MEMLOCK; empty: unlimited
  bool memlock_exempt = false;               // CAP_IPC_LOCK: the limit does not bind

  std::size_t huge_page_bytes = 0;
  std::size_t huge_pages = 0;
  std::size_t huge_pages_free = 0;
  std::string transparent_huge_pages;  // "always", "madvise", "never"; empty: unknown

  bool io_uring_built_in = false;
  int io_uring_error = 0;                // errno of io_uring_setup; 0: allowed
  std::optional<int> io_uring_disabled;  // the sysctl kernel.io_uring_disabled

  int nvidia_functions = 0;  // NVIDIA display controllers on the PCI bus, with or without driver
};

struct CudaInstallation {
  bool built_in = false;
  int toolkit_version = 0;      // that Penstock was built with; 13000 for 13.0, 0 without CUDA
  int driver_cuda_version = 0;  // newest CUDA the driver supports; 0 without a driver
  std::string driver;           // "580.65.06"; empty when unknown
  std::string why_no_gpu;       // empty when one is usable
  std::optional<std::string> visible_devices;  // CUDA_VISIBLE_DEVICES, where set
};

struct GpuInfo {
  int index = 0;
  Capabilities capabilities;
};

// A library or program that Penstock can use when it is there.
struct Tool {
  std::string name;   // "CUPTI"
  std::string use;    // what it is good for here
  std::string where;  // file; empty when not found
};

enum class Severity : std::uint8_t {
  problem,  // something does not work, or is much slower than it could be
  advice,   // works, and could be better
};

struct Finding {
  Severity severity = Severity::advice;
  std::string what;
  std::string why;  // it matters
  std::string fix;  // the command to type, or what to do where there is none
};

struct Machine {
  std::string version;  // of Penstock
  HostSystem host;
  CudaInstallation cuda;
  std::vector<GpuInfo> gpus;
  std::vector<Tool> tools;
};

// Looks at this machine. Never fails for something that is not there.
Machine inspect_machine();

// What is missing or in the way, problems first. A pure function of its argument.
std::vector<Finding> findings(const Machine& machine);

// One object: {"version", "os", ..., "gpus": [...], "tools": [...]}.
std::string as_json(const Machine& machine);

// "problem", "advice"
std::string_view name(Severity severity);

// 13020 as "13.2"
std::string cuda_version_text(int version);

}  // namespace ps
