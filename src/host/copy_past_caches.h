// A copy that leaves the caches to others: for what nobody here reads soon.
#pragma once

#include <cstddef>

namespace ps::detail {

// Like memcpy. What it wrote is ordered before what this thread writes next.
void copy_past_caches(void* to, const void* from, std::size_t bytes);

}  // namespace ps::detail
