// A file to be read, as large as asked for.
#pragma once

#include <cstddef>
#include <filesystem>

namespace bench {

// Written for the run and removed however it ends. Every 8 bytes are a number, which says where in
// the file it is.
class TestFile {
 public:
  // `bytes` is a multiple of `piece`.
  TestFile(const std::filesystem::path& directory, std::size_t bytes);
  ~TestFile();
  TestFile(const TestFile&) = delete;
  TestFile& operator=(const TestFile&) = delete;
  const std::filesystem::path& path() const { return path_; }

  static constexpr std::size_t piece = std::size_t{4} << 20;

 private:
  std::filesystem::path path_;
};

}  // namespace bench
