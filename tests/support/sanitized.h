// Whether the program runs under a sanitizer, which slows it down and keeps memory that was freed.
#pragma once

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

}  // namespace ps::test

#undef PENSTOCK_HAS_FEATURE
