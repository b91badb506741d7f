// A file that has a temporary name until it is complete.
#pragma once

#include <filesystem>
#include <string>

namespace ps::detail {

class TemporaryFile {
 public:
  // Creates an empty file next to `path`. Throws SystemError.
  explicit TemporaryFile(const std::filesystem::path& path);
  ~TemporaryFile();  // removes it, unless it was renamed
  TemporaryFile(TemporaryFile&& other) noexcept;
  TemporaryFile& operator=(TemporaryFile&&) = delete;

  const std::string& name() const { return temporary_; }
  void rename();  // to the `path` of the constructor

 private:
  std::string path_;
  std::string temporary_;  // empty: renamed
};

}  // namespace ps::detail
