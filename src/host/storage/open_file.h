// The descriptors of a file, open for as long as a handle or a transfer needs them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "penstock/host/storage.h"

namespace ps::detail {

class OpenFile {
 public:
  OpenFile(const std::filesystem::path& path, OpenOptions options);
  ~OpenFile();
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  FileVersion version() const;

  const std::string path;
  const FileMode mode;
  int cached = -1;           // through the page cache
  int direct = -1;           // past it; -1 where the file system refuses that
  std::size_t block = 4096;  // what direct transfers must be aligned to
};

}  // namespace ps::detail
