// Tells AddressSanitizer, where it is there, which bytes must not be touched.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define PENSTOCK_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PENSTOCK_ADDRESS_SANITIZER 1
#endif
#endif

#ifdef PENSTOCK_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#endif

namespace ps::test {

inline void poison([[maybe_unused]] void* data, [[maybe_unused]] std::size_t bytes) {
#ifdef PENSTOCK_ADDRESS_SANITIZER
  __asan_poison_memory_region(data, bytes);
#endif
}

inline void unpoison([[maybe_unused]] void* data, [[maybe_unused]] std::size_t bytes) {
#ifdef PENSTOCK_ADDRESS_SANITIZER
  __asan_unpoison_memory_region(data, bytes);
#endif
}

}  // namespace ps::test
