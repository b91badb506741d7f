#include "trace/kernel_bar.h"

#include <algorithm>

namespace ps::detail {

std::optional<std::size_t> kernel_bar(std::span<const TimelineEntry> entries,
                                      const PageKernel& kernel) {
  const Span& inside = kernel.roles.kernel;
  std::optional<std::size_t> bar;
  std::int64_t most = 0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const TimelineEntry& entry = entries[i];
    if (entry.engine != Engine::compute || entry.stage != kernel.stage ||
        entry.item != kernel.item) {
      continue;
    }
    const std::int64_t shared =
        std::min(entry.end_ns, inside.end_ns) - std::max(entry.begin_ns, inside.begin_ns);
    if (!bar || shared > most) bar = i, most = shared;
  }
  return bar;
}

}  // namespace ps::detail
