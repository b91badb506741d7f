// The header of a safetensors file: eight bytes with the length of a JSON object, which names the
// tensors; their bytes follow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/weights/weight_info.h"

namespace ps::detail {

inline constexpr std::size_t length_bytes = 8;
inline constexpr std::uint64_t longest_header = 100'000'000;  // the limit of the reference
inline constexpr std::string_view metadata_key = "__metadata__";

using Metadata = std::map<std::string, std::string>;

struct Header {
  std::vector<WeightInfo> tensors;  // in the order of their bytes; `file` is 0
  Metadata metadata;
};

// The length of the JSON that follows the first bytes of a file. Throws InvalidArgument whose
// argument is `path` if the file is too short for it or the limit is exceeded.
std::uint64_t header_length(std::span<const std::byte, length_bytes> first,
                            std::uint64_t file_bytes, std::string_view path);

// Throws InvalidArgument whose argument begins with `path` unless everything the format asks for
// holds: see docs/weights.md.
Header parse_header(std::string_view json, std::uint64_t file_bytes, std::string_view path);

// The number of bytes of a tensor. Throws InvalidArgument whose argument is `what` if it does not
// fit or is not whole.
std::uint64_t bytes_of(WeightType type, std::span<const std::int64_t> shape, std::string_view what);

// The first bytes of a file, up to those of its tensors: length and JSON, padded with spaces to a
// multiple of `alignment`. Tensors have offsets that begin at 0, without gaps. Throws
// InvalidArgument naming what cannot be written.
std::string format_header(std::span<const WeightInfo> tensors, const Metadata& metadata,
                          std::size_t alignment);

}  // namespace ps::detail
