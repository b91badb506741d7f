// The kind of memory that bytes are in, and its device.
#pragma once

#include <cstdint>
#include <string>

namespace ps {

enum class Memory : std::uint8_t {
  host,    // ordinary pageable memory
  pinned,  // page-locked memory, which copy engines read directly
  device,  // the device's own memory; on the CPU device, ordinary memory
};

// The CPU's index in Place and Device; GPU indices start at 0.
inline constexpr int cpu_index = -1;

struct Place {
  Memory memory = Memory::host;
  int device = cpu_index;  // for Memory::device only

  friend bool operator==(const Place&, const Place&) = default;
};

// "host", "pinned", "cuda:0", "cpu"
std::string name(Place place);

}  // namespace ps
