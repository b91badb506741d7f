// What this library was built from: the stamp that every written figure carries.
#pragma once

#include <string>
#include <string_view>

namespace ps {

struct BuildInfo {
  std::string_view version;   // "0.1.0"
  std::string_view commit;    // twelve digits, "-dirty" behind them when the tree had changes
  std::string_view compiler;  // "GNU 12.2.0"
  std::string_view cuda;      // the toolkit's version, or "none"
};

BuildInfo build_info();

// The time of day, "2026-01-31T12:00:00Z".
std::string now_utc();

}  // namespace ps
