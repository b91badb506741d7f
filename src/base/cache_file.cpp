#include "base/cache_file.h"

#include <cerrno>
#include <cstdlib>

#include "penstock/base/text_file.h"
#include "penstock/base/units.h"

namespace ps::detail {
namespace {

constexpr std::size_t largest_cache = MiB;

}  // namespace

std::filesystem::path cache_path(std::string_view name) {
  struct Folder {
    const char* variable;
    const char* below;
  };
  for (const Folder& folder : {Folder{"PENSTOCK_CACHE", ""}, Folder{"XDG_CACHE_HOME", "penstock"},
                               Folder{"HOME", ".cache/penstock"}}) {
    const char* value = std::getenv(folder.variable);
    if (value != nullptr && *value != '\0') {
      return std::filesystem::path(value) / folder.below / name;
    }
  }
  return {};
}

std::optional<std::string> read_cache(const std::filesystem::path& file) {
  try {
    return read_text(file, largest_cache);
  } catch (const SystemError& error) {
    const int why = error.code().value();
    if (why == ENOENT || why == ENOTDIR) return std::nullopt;
    throw;
  }
}

void replace_cache(const std::filesystem::path& file, std::string_view text) {
  std::error_code error;
  std::filesystem::create_directories(file.parent_path(), error);
  if (error) throw SystemError(error.value(), "create", file.parent_path().string());
  write_text(file, text);
}

}  // namespace ps::detail
