#include <cstring>
#include <span>
#include <string_view>

#include "fuzz/targets.h"
#include "penstock/base/error.h"
#include "weights/header.h"

namespace ps::fuzz {

int safetensors(const std::uint8_t* data, std::size_t size) {
  // The bytes before the last eight are the header. Those say how long the file would be, so that
  // tensors need no bytes of their own.
  constexpr std::size_t number = sizeof(std::uint64_t);
  if (size < number) return 0;
  const std::string_view json(reinterpret_cast<const char*>(data), size - number);
  std::uint64_t file_bytes = 0;
  std::memcpy(&file_bytes, data + json.size(), number);
  try {
    detail::header_length(std::span<const std::byte, number>(
                              reinterpret_cast<const std::byte*>(data + json.size()), number),
                          size, "file");
  } catch (const InvalidArgument&) {
  }
  try {
    const detail::Header header = detail::parse_header(json, file_bytes, "file");
    // Every byte after the header belongs to one tensor, and the same header is written and
    // believed again.
    std::uint64_t end = detail::length_bytes + json.size();
    std::vector<WeightInfo> tensors = header.tensors;
    for (WeightInfo& tensor : tensors) {
      if (tensor.offset != end) __builtin_trap();
      end += tensor.bytes;
      tensor.offset -= detail::length_bytes + json.size();
    }
    if (end != file_bytes) __builtin_trap();
    const std::string again = detail::format_header(tensors, header.metadata, 8);
    const std::uint64_t data_bytes = file_bytes - detail::length_bytes - json.size();
    const detail::Header read = detail::parse_header(
        std::string_view(again).substr(detail::length_bytes), again.size() + data_bytes, "again");
    if (read.tensors.size() != tensors.size() || read.metadata != header.metadata) __builtin_trap();
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (read.tensors[i].bytes != tensors[i].bytes) __builtin_trap();
    }
  } catch (const InvalidArgument&) {
  }
  return 0;
}

}  // namespace ps::fuzz
