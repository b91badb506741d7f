// The interval of a run that a kernel's trace is the inside of.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "penstock/trace/page.h"

namespace ps::detail {

// Of compute's intervals with the kernel's stage and item, the one that shares most time with it.
std::optional<std::size_t> kernel_bar(std::span<const TimelineEntry> entries,
                                      const PageKernel& kernel);

}  // namespace ps::detail
