// Whether the program runs under a sanitizer, which slows it down and keeps memory that was freed,
// and how many random cases a test makes.
#pragma once

#include <cstdint>

#if defined(__has_feature)
#define PENSTOCK_HAS_FEATURE(name) __has_feature(name)
#else
#define PENSTOCK_HAS_FEATURE(name) 0
#endif

namespace ps::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || \
    PENSTOCK_HAS_FEATURE(address_sanitizer) || PENSTOCK_HAS_FEATURE(thread_sanitizer)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

// Ordinary builds compare the numbers of all cases. Sanitized ones run many times as long, and what
// they look for shows in a fifth of the cases.
constexpr std::uint32_t random_cases(std::uint32_t cases) {
  return sanitized ? (cases + 4) / 5 : cases;
}

}  // namespace ps::test

#undef PENSTOCK_HAS_FEATURE
