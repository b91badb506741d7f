// How much the last level of the CPU's caches holds.
#pragma once

#include <cstddef>

namespace ps::detail {

// All parts of it together; 0 where the system does not tell.
std::size_t last_level_cache();

// What one core reaches, which is less on CPUs whose last cache is in parts; 0 as above.
std::size_t last_level_cache_of_core();

}  // namespace ps::detail
