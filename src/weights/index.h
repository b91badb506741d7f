// The index of a checkpoint of several files (model.safetensors.index.json): which file, or shard,
// holds which tensor.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace ps::detail {

using WeightMap = std::map<std::string, std::string>;  // names of tensors to names of files

inline constexpr std::size_t longest_index = 100'000'000;

// Throws InvalidArgument whose argument begins with `path` for anything but a JSON object with a
// weight_map of strings. Files must be in the folder of the index: their names have no '/'. Other
// fields are ignored.
WeightMap parse_index(std::string_view json, std::string_view path);

std::string format_index(const WeightMap& map, std::uint64_t total_bytes);

}  // namespace ps::detail
