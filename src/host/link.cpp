#include "host/link.h"

#include <dlfcn.h>

#include <cstdlib>
#include <fstream>

namespace ps::detail {
namespace {

std::optional<std::string> attribute(const std::string& pci_address, const char* name) {
  std::ifstream file("/sys/bus/pci/devices/" + pci_address + "/" + name);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

std::optional<int> number(const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  char* end = nullptr;
  const long value = std::strtol(text->c_str(), &end, 10);
  if (end == text->c_str() || value < 0) return std::nullopt;
  return static_cast<int>(value);
}

std::optional<int> generation(const std::string& pci_address, const char* name) {
  const auto speed = attribute(pci_address, name);
  return speed ? pcie_generation(*speed) : std::nullopt;
}

// A virtual machine may hide the link from the system; the GPU's own management library still
// knows. Loaded on demand, since no build depends on it.
class ManagementLibrary {
 public:
  ManagementLibrary() : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) return;
    const auto init = symbol<int (*)()>("nvmlInit_v2");
    if (init == nullptr || init() != 0) close();
  }
  ~ManagementLibrary() {
    if (library_ == nullptr) return;
    if (const auto shutdown = symbol<int (*)()>("nvmlShutdown")) shutdown();
    close();
  }
  ManagementLibrary(const ManagementLibrary&) = delete;
  ManagementLibrary& operator=(const ManagementLibrary&) = delete;

  void fill(const std::string& pci_address, Link& link) {
    if (library_ == nullptr) return;
    const auto find = symbol<int (*)(const char*, void**)>("nvmlDeviceGetHandleByPciBusId_v2");
    void* device = nullptr;
    if (find == nullptr || find(pci_address.c_str(), &device) != 0) return;
    read("nvmlDeviceGetCurrPcieLinkGeneration", device, link.pcie_generation);
    read("nvmlDeviceGetCurrPcieLinkWidth", device, link.pcie_width);
    read("nvmlDeviceGetMaxPcieLinkGeneration", device, link.pcie_max_generation);
    read("nvmlDeviceGetMaxPcieLinkWidth", device, link.pcie_max_width);
  }

 private:
  template <class Function>
  Function symbol(const char* name) {
    return reinterpret_cast<Function>(dlsym(library_, name));
  }

  void read(const char* function, void* device, std::optional<int>& field) {
    if (field) return;
    const auto query = symbol<int (*)(void*, unsigned*)>(function);
    unsigned value = 0;
    if (query != nullptr && query(device, &value) == 0) field = static_cast<int>(value);
  }

  void close() {
    dlclose(library_);
    library_ = nullptr;
  }

  void* library_;
};

}  // namespace

std::optional<int> pcie_generation(const std::string& speed) {
  const double rate = std::strtod(speed.c_str(), nullptr);
  constexpr double rates[] = {2.5, 5, 8, 16, 32, 64};
  for (int i = 0; i < 6; ++i) {
    if (rate == rates[i]) return i + 1;
  }
  return std::nullopt;
}

Link read_link(const std::string& pci_address) {
  Link link;
  link.pci_address = pci_address;
  if (pci_address.empty()) return link;
  link.pcie_generation = generation(pci_address, "current_link_speed");
  link.pcie_width = number(attribute(pci_address, "current_link_width"));
  link.pcie_max_generation = generation(pci_address, "max_link_speed");
  link.pcie_max_width = number(attribute(pci_address, "max_link_width"));
  // Width 0 is the system's word for "unknown".
  if (link.pcie_width == 0) link.pcie_width.reset();
  if (link.pcie_max_width == 0) link.pcie_max_width.reset();
  if (!link.pcie_generation || !link.pcie_width) ManagementLibrary().fill(pci_address, link);
  return link;
}

std::optional<int> read_numa_node(const std::string& pci_address) {
  return pci_address.empty() ? std::nullopt : number(attribute(pci_address, "numa_node"));
}

}  // namespace ps::detail
