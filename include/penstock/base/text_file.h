// Small files of text: read whole, and replaced whole or not at all.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace ps {

// Throws SystemError naming the path: what cannot be opened or read, a directory, a file of more
// than `largest` bytes.
std::string read_text(const std::filesystem::path& path, std::size_t largest);

// Writes beside `path` and renames: whoever reads it finds the old text or the new one. Throws
// SystemError naming the path; then the old file is as it was and nothing is left beside it.
void write_text(const std::filesystem::path& path, std::string_view text);

}  // namespace ps
