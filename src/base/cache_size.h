// The size of the CPU's last-level cache, in bytes.
#pragma once

#include <cstddef>

namespace ps::detail {

// The whole cache; 0 if the system does not report it.
std::size_t last_level_cache();

// The part that one core uses, which is smaller where the cache is split; 0 as above.
std::size_t last_level_cache_of_core();

}  // namespace ps::detail
