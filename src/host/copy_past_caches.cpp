#include "host/copy_past_caches.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace ps::detail {

void copy_past_caches(void* to, const void* from, std::size_t bytes) {
#if defined(__SSE2__)
  // Whole lines go past the caches; the ends do not.
  constexpr std::size_t line = 64;
  auto* out = static_cast<std::byte*>(to);
  const auto* in = static_cast<const std::byte*>(from);
  const std::size_t head =
      std::min((line - reinterpret_cast<std::uintptr_t>(out) % line) % line, bytes);
  std::memcpy(out, in, head);
  const std::size_t body = (bytes - head) / line * line;
  for (std::size_t at = head; at < head + body; at += line) {
    const auto* const source = reinterpret_cast<const __m128i*>(in + at);
    auto* const target = reinterpret_cast<__m128i*>(out + at);
    const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
  _mm_sfence();
  std::memcpy(out + head + body, in + head + body, bytes - head - body);
#else
  std::memcpy(to, from, bytes);
#endif
}

}  // namespace ps::detail
