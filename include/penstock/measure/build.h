// The version and build of this library, which every result file contains.
#pragma once

#include <string>
#include <string_view>

namespace ps {

struct BuildInfo {
  std::string_view version;   // "0.1.0"
  std::string_view commit;    // twelve digits, followed by "-dirty" if the tree had changes
  std::string_view compiler;  // "GNU 12.2.0"
  std::string_view cuda;      // version of the toolkit, or "none"
};

BuildInfo build_info();

// The current time, as "2026-01-31T12:00:00Z".
std::string now_utc();

}  // namespace ps
