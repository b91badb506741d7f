// Calls of compress() and decompress() with checked arguments, and the ways to run them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "penstock/host/device.h"
#include "penstock/host/stream.h"

namespace ps::detail {

inline constexpr std::int64_t compress_most_elements = std::int64_t{1} << 34;

struct CompressWork {
  std::uint64_t elements = 0;
  const std::uint16_t* x = nullptr;
  std::byte* out = nullptr;
  std::size_t room = 0;  // bytes
};

// Returns the bytes needed. If there is not that much room, nothing has been written.
std::size_t compress_cpu(const CompressWork& work);

struct DecompressWork {
  std::uint64_t elements = 0;  // not 0
  const std::byte* compressed = nullptr;
  std::size_t bytes = 0;  // at least the header and all offsets
  std::uint16_t* out = nullptr;
  unsigned thread_blocks = 0;  // 0: no limit
};

void decompress_cpu(const DecompressWork& work, const Stream& stream);

// On a GPU of compute capability 8.0 or later. Throws DeviceError.
void decompress_portable(const DecompressWork& work, const Stream& stream);
void load_decompress_portable(const Device& device);

// Loads what decompress() launches on a device, for a thread that must not wait for the device when
// it calls decompress(); see kit::LoadKernels. Throws Unsupported as decompress(), DeviceError.
void load_decompress(const Device& device);

}  // namespace ps::detail
