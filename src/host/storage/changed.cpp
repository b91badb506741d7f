#include "host/storage/changed.h"

#include <fmt/format.h>

#include <cerrno>
#include <string>

#include "penstock/base/error.h"

namespace ps::detail {

void check_unchanged(const File& file, const FileVersion& before) {
  const FileVersion now = file.version();
  if (now == before) return;
  const std::string how =
      now.bytes == before.bytes
          ? "modified since it was opened"
          : fmt::format("of {} bytes when it was opened, now of {}", before.bytes, now.bytes);
  throw SystemError(ESTALE, "read", fmt::format("{}, {}", file.path(), how));
}

}  // namespace ps::detail
