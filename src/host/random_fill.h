// Bytes that hold no pattern: hardware that compresses, or saves power on zeros, must not help.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "penstock/host/stream.h"

namespace ps::detail {

void fill_random(std::span<std::byte> bytes, std::uint64_t seed);

// All over memory of the stream's device, from one small page-locked buffer. Waits.
void scatter_random(MemoryView target, const Stream& stream);

}  // namespace ps::detail
