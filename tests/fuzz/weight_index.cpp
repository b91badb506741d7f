#include <filesystem>
#include <string_view>

#include "fuzz/targets.h"
#include "penstock/base/error.h"
#include "weights/index.h"

namespace ps::fuzz {

int weight_index(const std::uint8_t* data, std::size_t size) {
  try {
    const auto map = detail::parse_index({reinterpret_cast<const char*>(data), size}, "index");
    for (const auto& [tensor, file] : map) {
      // No file outside the folder of the index.
      if (std::filesystem::path(file).filename() != file || file == "..") __builtin_trap();
    }
    if (detail::parse_index(detail::format_index(map, size), "again") != map) __builtin_trap();
  } catch (const InvalidArgument&) {
  }
  return 0;
}

}  // namespace ps::fuzz
