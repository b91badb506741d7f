// How a PCI device is attached, as the system tells.
#pragma once

#include <optional>
#include <string>

#include "penstock/host/device.h"

namespace ps::detail {

// `pci_address` as in "0000:3b:00.0". Fields the system does not tell stay empty.
Link read_link(const std::string& pci_address);
std::optional<int> read_numa_node(const std::string& pci_address);

// "32.0 GT/s PCIe" is generation 5.
std::optional<int> pcie_generation(const std::string& speed);

}  // namespace ps::detail
