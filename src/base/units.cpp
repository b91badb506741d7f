#include "penstock/base/units.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <span>

#include "penstock/base/error.h"

namespace ps {
namespace {

// Four significant digits without trailing zeros.
std::string trimmed(double value) {
  std::string text = fmt::format("{:.4g}", value);
  if (text.find('e') != std::string::npos) text = fmt::format("{:.0f}", value);
  return text;
}

struct Unit {
  double size;
  const char* name;
};

// The largest unit that leaves a value of at least 1; the last one when none does.
std::string scaled(double value, std::span<const Unit> units) {
  for (const Unit& unit : units) {
    if (std::abs(value) >= unit.size) return trimmed(value / unit.size) + " " + unit.name;
  }
  return trimmed(value / units.back().size) + " " + units.back().name;
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

}  // namespace

std::string format_bytes(std::size_t bytes) {
  static constexpr std::array<Unit, 5> units{
      {{0x1p40, "TiB"}, {0x1p30, "GiB"}, {0x1p20, "MiB"}, {0x1p10, "KiB"}, {1, "B"}}};
  return scaled(static_cast<double>(bytes), units);
}

std::string format_seconds(double seconds) {
  static constexpr std::array<Unit, 4> units{{{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}, {1e-9, "ns"}}};
  return scaled(seconds, units);
}

std::string format_rate(double bytes_per_second) {
  static constexpr std::array<Unit, 5> units{
      {{1e12, "TB/s"}, {1e9, "GB/s"}, {1e6, "MB/s"}, {1e3, "kB/s"}, {1, "B/s"}}};
  return scaled(bytes_per_second, units);
}

std::size_t parse_bytes(std::string_view text, std::string_view argument, bool allow_zero) {
  const auto refuse = [&] {
    detail::throw_invalid(argument,
                          allow_zero ? "a size such as 0, 4096, 64k, 16MiB or 1.5G"
                                     : "a size above zero such as 4096, 64k, 16MiB or 1.5G",
                          "'" + std::string(text) + "'");
  };
  const std::string_view body = trim(text);
  double value = 0;
  const auto [rest, error] =
      std::from_chars(body.data(), body.data() + body.size(), value, std::chars_format::fixed);
  if (error != std::errc() || !(value >= 0)) refuse();

  std::string_view suffix = trim(body.substr(static_cast<std::size_t>(rest - body.data())));
  double scale = 1;
  if (!suffix.empty()) {
    static constexpr std::string_view prefixes = "kmgt";
    const char letter = static_cast<char>(suffix.front() | 0x20);
    const auto power = prefixes.find(letter);
    if (power != std::string_view::npos) {
      scale = std::ldexp(1.0, 10 * static_cast<int>(power + 1));
      suffix.remove_prefix(1);
      if (!suffix.empty() && suffix.front() == 'i') suffix.remove_prefix(1);
    }
    if (!suffix.empty() && suffix != "B" && suffix != "b") refuse();
  }
  const double bytes = value * scale;
  if (!(bytes < 0x1p63)) refuse();
  const auto whole = static_cast<std::size_t>(bytes);
  if (static_cast<double>(whole) != bytes || (whole == 0 && !allow_zero)) refuse();
  return whole;
}

}  // namespace ps
