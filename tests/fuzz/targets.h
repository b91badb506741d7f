// Parsers of what comes from outside. Each takes any bytes and returns 0, or the process dies: what
// is not a document may be refused in the house's way only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ps::fuzz {

int limits(const std::uint8_t* data, std::size_t size);    // the ceilings' cache file
int choices(const std::uint8_t* data, std::size_t size);   // of kernels, the cache file
int document(const std::uint8_t* data, std::size_t size);  // reports, results, ladders, timelines

}  // namespace ps::fuzz
