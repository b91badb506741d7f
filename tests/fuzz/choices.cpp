#include <string_view>

#include "fuzz/targets.h"
#include "penstock/base/error.h"
#include "penstock/ops/choices.h"

namespace ps::fuzz {

int choices(const std::uint8_t* data, std::size_t size) {
  try {
    const auto entries = parse_choices({reinterpret_cast<const char*>(data), size});
    // What was believed is written and believed again.
    if (parse_choices(format_choices(entries)).size() != entries.size()) __builtin_trap();
  } catch (const InvalidArgument&) {
  }
  return 0;
}

}  // namespace ps::fuzz
