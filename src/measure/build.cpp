#include "penstock/measure/build.h"

#include <ctime>

#include "penstock/version.h"
#include "penstock_build.h"

namespace ps {

BuildInfo build_info() {
  return {PENSTOCK_VERSION, PENSTOCK_BUILD_COMMIT, PENSTOCK_BUILD_COMPILER, PENSTOCK_BUILD_CUDA};
}

std::string now_utc() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32] = {};
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

}  // namespace ps
