// Formats bytes, times and rates, and parses sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ps {

inline constexpr std::size_t KiB = std::size_t{1} << 10;
inline constexpr std::size_t MiB = std::size_t{1} << 20;
inline constexpr std::size_t GiB = std::size_t{1} << 30;

// "256 MiB", "1.5 GiB", "12 B"
std::string format_bytes(std::size_t bytes);

// "38.75 ms", "12.1 us"
std::string format_seconds(double seconds);

// Decimal units, as in datasheets: "55.2 GB/s", "4.22 TB/s"
std::string format_rate(double bytes_per_second);

// Bytes from "4096", "64k", "64 KiB", "16M" or "1.5GiB" (binary prefixes). Throws InvalidArgument
// naming `argument` for any other text, for zero unless `allow_zero`, and on overflow.
std::size_t parse_bytes(std::string_view text, std::string_view argument, bool allow_zero = false);

}  // namespace ps
