// Whether a build is sanitized, and how many random cases its tests make.
#pragma once

#include <cstdint>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PENSTOCK_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define PENSTOCK_SANITIZED 1
#endif
#endif

namespace ps::test {

#ifdef PENSTOCK_SANITIZED
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
