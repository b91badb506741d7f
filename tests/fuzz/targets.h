// Parsers of data from outside. Each takes any bytes and returns 0; it aborts where a parser
// refuses them with anything other than a Penstock error.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ps::fuzz {

int limits(const std::uint8_t* data, std::size_t size);      // the ceilings' cache file
int choices(const std::uint8_t* data, std::size_t size);     // of kernels, the cache file
int decompress(const std::uint8_t* data, std::size_t size);  // compressed weights
int document(const std::uint8_t* data, std::size_t size);    // reports, results, ladders, timelines
int safetensors(const std::uint8_t* data, std::size_t size);   // the header, and a file's length
int weight_index(const std::uint8_t* data, std::size_t size);  // of a checkpoint of several files

}  // namespace ps::fuzz
