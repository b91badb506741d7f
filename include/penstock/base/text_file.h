// Reads and atomically replaces small text files.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace ps {

// The file's contents. Throws SystemError naming the path if the file cannot be read, is a
// directory, or has more than `largest` bytes.
std::string read_text(const std::filesystem::path& path, std::size_t largest);

// Writes a temporary file and renames it to `path`, so that readers see the old text or the new
// one. Throws SystemError naming the path; the old file is then unchanged and no temporary file is
// left.
void write_text(const std::filesystem::path& path, std::string_view text);

}  // namespace ps
