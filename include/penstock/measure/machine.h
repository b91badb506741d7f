// Inspects this machine: hardware, driver and libraries, problems, and how to fix them.
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
  int cores = 0;       // logical cores that this process may use
  int numa_nodes = 1;
  std::size_t memory_bytes = 0;
  std::size_t available_bytes = 0;
  std::optional<std::size_t> memory_limit_bytes;  // of the control group, if below memory_bytes

  std::optional<std::size_t> memlock_bytes;  // RLIMIT_MEMLOCK; empty: unlimited
  bool memlock_exempt = false;               // has CAP_IPC_LOCK, so that the limit does not apply

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
  int toolkit_version = 0;      // of the build: 13000 for 13.0; 0 without CUDA
  int driver_cuda_version = 0;  // newest CUDA version that the driver supports; 0 without a driver
  std::string driver;           // "580.65.06"; empty if unknown
  std::string why_no_gpu;       // empty if a GPU is usable
  std::optional<std::string> visible_devices;  // CUDA_VISIBLE_DEVICES, if set
};

struct GpuInfo {
  int index = 0;
  Capabilities capabilities;
};

// An optional library or program.
struct Tool {
  std::string name;   // "CUPTI"
  std::string use;    // what Penstock uses it for
  std::string where;  // its path; empty if not found
};

enum class Severity : std::uint8_t {
  problem,  // something does not work or is much slower than necessary
  advice,   // something works but could be better
};

struct Finding {
  Severity severity = Severity::advice;
  std::string what;
  std::string why;  // why it matters
  std::string fix;  // the command to run, or other advice
};

struct Machine {
  std::string version;  // of Penstock
  HostSystem host;
  CudaInstallation cuda;
  std::vector<GpuInfo> gpus;
  std::vector<Tool> tools;
};

// Inspects this machine. Does not throw for missing parts.
Machine inspect_machine();

// Problems and advice, problems first. Depends on `machine` only.
std::vector<Finding> findings(const Machine& machine);

// One object: {"version", "os", ..., "gpus": [...], "tools": [...]}.
std::string as_json(const Machine& machine);

// "problem", "advice"
std::string_view name(Severity severity);

// "13.2" for 13020
std::string cuda_version_text(int version);

}  // namespace ps
