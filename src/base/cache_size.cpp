#include "base/cache_size.h"

#include <unistd.h>

#include <fstream>

#include "penstock/base/units.h"

namespace ps::detail {

std::size_t last_level_cache() {
  const long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return bytes > 0 ? static_cast<std::size_t>(bytes) : 0;
}

std::size_t last_level_cache_of_core() {
  std::size_t kibibytes = 0;
  std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index3/size");
  if (file >> kibibytes && file.get() == 'K') return kibibytes * KiB;
  return last_level_cache();
}

}  // namespace ps::detail
