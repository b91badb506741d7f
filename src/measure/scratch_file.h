// A file without a name, to measure a disk with.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <utility>

namespace ps::detail {

// Created in a directory and unlinked at once: whatever happens to the process, nothing stays.
// Past the page cache (O_DIRECT) where the file system allows it.
class ScratchFile {
 public:
  // Throws SystemError naming the directory.
  explicit ScratchFile(const std::filesystem::path& directory);
  ~ScratchFile();
  ScratchFile(ScratchFile&& other) noexcept
      : subject_(std::move(other.subject_)),
        fd_(std::exchange(other.fd_, -1)),
        direct_(other.direct_) {}
  ScratchFile& operator=(ScratchFile&&) = delete;

  // By which it can be opened again while it lives.
  std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(fd_); }

  // All of it, or SystemError. Offset, length and buffer are aligned to 4 KiB.
  void write(const std::byte* data, std::size_t bytes, std::size_t offset) const;
  void read(std::byte* data, std::size_t bytes, std::size_t offset) const;

  void flush() const;     // to the disk itself
  void forget() const;    // drops what the page cache holds of it
  void use_page_cache();  // gives up O_DIRECT
  bool direct() const { return direct_; }

  std::size_t free_bytes() const;  // of the file system, for this user
  bool in_memory() const;          // tmpfs or ramfs: not a disk

 private:
  std::string subject_;  // for messages
  int fd_ = -1;
  bool direct_ = false;
};

}  // namespace ps::detail
