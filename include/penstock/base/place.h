// Where bytes live.
#pragma once

#include <cstdint>
#include <string>

namespace ps {

enum class Memory : std::uint8_t {
  host,    // ordinary pageable memory
  pinned,  // page-locked memory, which copy engines read directly
  device,  // memory of the device; on the CPU device this is ordinary memory
};

// Index of the CPU in Place and Device; GPUs count from 0.
inline constexpr int cpu_index = -1;

struct Place {
  Memory memory = Memory::host;
  int device = cpu_index;  // meaningful for Memory::device

  friend bool operator==(const Place&, const Place&) = default;
};

// "host", "pinned", "cuda:0", "cpu"
std::string name(Place place);

}  // namespace ps
