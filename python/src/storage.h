// Files.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <string>

#include "penstock/host/storage.h"

namespace ps::python {

namespace nb = nanobind;

// The path in a Python str, bytes or path-like object.
std::string path_from(nb::handle object);

// A file that can be closed, and that knows its path for errors.
class OpenedFile {
 public:
  OpenedFile(std::string path, FileOptions options);

  const std::string& path() const { return path_; }
  FileMode mode() const { return mode_; }
  void close() { file_.reset(); }
  bool closed() const { return !file_; }
  const File& file() const;  // throws if it is closed

  // Blocking, in pieces, so that Ctrl-C is noticed in between. The GIL is held.
  void read(std::uint64_t offset, MemoryView to) const;
  void read_to_gpu(std::uint64_t offset, nb::handle out, int gpu) const;
  void write(std::uint64_t offset, MemoryView from) const;

 private:
  template <class Move>
  void in_pieces(std::uint64_t offset, MemoryView memory, const Move& move) const;

  std::string path_;
  FileMode mode_;
  std::optional<File> file_;
};

}  // namespace ps::python
