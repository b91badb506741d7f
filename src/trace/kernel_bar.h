// Finds the interval of a run that a kernel's trace belongs to.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "penstock/trace/page.h"

namespace ps::detail {

// The index of compute's interval with the kernel's stage and item; if there are several, of the
// one that overlaps the kernel most.
std::optional<std::size_t> kernel_bar(std::span<const TimelineEntry> entries,
                                      const PageKernel& kernel);

}  // namespace ps::detail
