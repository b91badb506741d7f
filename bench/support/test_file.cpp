#include "support/test_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <system_error>

#include "penstock/host/buffer.h"
#include "penstock/host/storage.h"

namespace bench {

TestFile::TestFile(const std::filesystem::path& directory, std::size_t bytes)
    : path_(directory / fmt::format("penstock_bench_{}", getpid())) {
  const ps::PinnedBuffer memory(ps::Device::cpu(), piece);
  try {
    const ps::File file(path_, {.mode = ps::FileMode::write});
    for (std::size_t at = 0; at < bytes; at += piece) {
      for (std::size_t i = 0; i < piece; i += sizeof(std::uint64_t)) {
        const std::uint64_t word = at + i;
        std::memcpy(memory.view().data + i, &word, sizeof(word));
      }
      file.write(at, memory.view());
    }
    file.flush();
  } catch (...) {
    std::filesystem::remove(path_);
    throw;
  }
}

TestFile::~TestFile() {
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

}  // namespace bench
