// Identifies the machine that figures were measured on. On other machines they do not apply.
#pragma once

#include <string>

#include "penstock/host/device.h"

namespace ps {

struct MachineKey {
  std::string device;   // "NVIDIA H200"; the CPU's name on the CPU device
  std::string driver;   // "580.65.06"; empty on the CPU
  std::string cpu;      // "AMD EPYC 9334 32-Core Processor"
  std::string version;  // of Penstock

  friend bool operator==(const MachineKey&, const MachineKey&) = default;
};

MachineKey machine_key(const Device& device);

}  // namespace ps
