// The machine that measured figures belong to: they are worth nothing on another.
#pragma once

#include <string>

#include "penstock/host/device.h"

namespace ps {

struct MachineKey {
  std::string device;   // "NVIDIA H200"; the CPU's name where that is the device
  std::string driver;   // "580.65.06"; empty on the CPU
  std::string cpu;      // "AMD EPYC 9334 32-Core Processor"
  std::string version;  // of Penstock

  friend bool operator==(const MachineKey&, const MachineKey&) = default;
};

// Who the figures of `device` belong to.
MachineKey machine_key(const Device& device);

}  // namespace ps
