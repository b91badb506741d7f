// The devices that work runs on: the CPU and each GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "penstock/base/place.h"

namespace ps {

namespace detail {
class Backend;
}

enum class DeviceKind : std::uint8_t { cpu, cuda };

// How the device is attached to the host. Fields that the system does not report are empty.
struct Link {
  std::optional<int> pcie_generation;
  std::optional<int> pcie_width;
  std::optional<int> pcie_max_generation;
  std::optional<int> pcie_max_width;
  std::string pci_address;  // "0000:3b:00.0", empty for the CPU
};

struct Capabilities {
  std::string name;
  int compute_major = 0;  // 0 on the CPU
  int compute_minor = 0;
  int multiprocessors = 0;  // cores on the CPU
  int copy_engines = 0;
  int concurrent_grids = 0;  // kernels that may run concurrently; 0 if unknown
  std::size_t memory_bytes = 0;
  std::size_t free_bytes = 0;  // at the time of the call
  std::size_t l2_bytes = 0;
  std::optional<int> numa_node;
  bool memory_pools = false;
  bool virtual_memory = false;
  bool stream_wait_value = false;
  Link link;
};

// A handle; copies refer to the same device. Thread-safe.
class Device {
 public:
  // The CPU, then every usable GPU.
  static std::vector<Device> all();
  static Device cpu();
  // Throws InvalidArgument if there is no such GPU. The message says how many there are and, if
  // none, why (no driver, driver too old, built without CUDA).
  static Device cuda(int index);
  // The first usable GPU, else the CPU.
  static Device best();
  // "cpu", "cuda", "cuda:1" or "best". Throws InvalidArgument.
  static Device parse(std::string_view text);
  // The reason why no GPU is usable; empty if one is.
  static std::string why_no_gpu();

  DeviceKind kind() const;
  int index() const;         // cpu_index for the CPU
  std::string name() const;  // "cpu", "cuda:0"
  Capabilities capabilities() const;
  Place place() const;  // of the device's memory

  // The number of memory allocations, streams and events that this process has created on the
  // device through the library. Allocations from a pool are not counted.
  std::uint64_t allocations() const;

  // Blocks until everything enqueued on the device has completed.
  void synchronize() const;

  friend bool operator==(const Device& a, const Device& b) { return a.backend_ == b.backend_; }

  explicit Device(std::shared_ptr<detail::Backend> backend) : backend_(std::move(backend)) {}
  detail::Backend& backend() const { return *backend_; }
  const std::shared_ptr<detail::Backend>& shared_backend() const { return backend_; }

 private:
  std::shared_ptr<detail::Backend> backend_;
};

}  // namespace ps
