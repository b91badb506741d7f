#include "support/memory_mix.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "penstock/base/checked.h"
#include "penstock/base/units.h"
#include "penstock/host/parallel.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace bench {
namespace {

constexpr std::size_t line = 64;

#if defined(__SSE2__)

struct Line {
  __m128i words[line / sizeof(__m128i)];
};

void read_line(Line& all, const std::byte* from) {
  const auto* next = reinterpret_cast<const __m128i*>(from);
  for (__m128i& word : all.words) word = _mm_or_si128(word, _mm_loadu_si128(next++));
}

void write_line(std::byte* to, const Line& all, bool past_caches) {
  auto* next = reinterpret_cast<__m128i*>(to);
  for (const __m128i& word : all.words) {
    past_caches ? _mm_stream_si128(next++, word) : _mm_store_si128(next++, word);
  }
}

void finish_writes() { _mm_sfence(); }

#else

struct Line {
  std::size_t words[line / sizeof(std::size_t)];
};

void read_line(Line& all, const std::byte* from) {
  Line one{};
  std::memcpy(&one, from, line);
  for (std::size_t i = 0; i < std::size(one.words); ++i) all.words[i] |= one.words[i];
}

void write_line(std::byte* to, const Line& all, bool /*past_caches*/) {
  std::memcpy(to, &all, line);
}

void finish_writes() {}

#endif

struct Way {
  std::size_t block;  // lines written before the next lines are read
  bool past_caches;
};

// Writes lines [begin, end) of mix.to and reads as large a share of mix.from.
void move_lines(const MemoryMix& mix, const Way& way, std::size_t begin, std::size_t end) {
  const std::size_t reads = mix.from.bytes / line, writes = mix.to.bytes / line;
  const auto read_by = [&](std::size_t written) { return written * reads / writes; };
  Line all{};
  for (std::size_t at = begin; at < end; at += way.block) {
    const std::size_t next = std::min(at + way.block, end);
    for (std::size_t i = read_by(at); i < read_by(next); ++i) {
      read_line(all, mix.from.data + i * line);
    }
    for (std::size_t i = at; i < next; ++i) {
      write_line(mix.to.data + i * line, all, way.past_caches);
    }
  }
  finish_writes();
}

}  // namespace

std::vector<std::function<void()>> memory_passes(const MemoryMix& mix) {
  const std::size_t lines = mix.to.bytes / line;
  const std::size_t share = ps::ceil_div(lines, ps::parallel_threads());
  std::vector<std::function<void()>> passes;
  for (const bool past_caches : {false, true}) {
    for (const std::size_t block : {1 * ps::KiB / line, 16 * ps::KiB / line}) {
      const Way way{.block = block, .past_caches = past_caches};
      if (mix.one_thread) {
        passes.emplace_back([=] { move_lines(mix, way, 0, lines); });
        continue;
      }
      for (const std::size_t grain : {std::max<std::size_t>(share, 1), 256 * ps::KiB / line}) {
        passes.emplace_back([=] {
          ps::parallel_ranges(lines, grain, [&](std::size_t begin, std::size_t end) {
            move_lines(mix, way, begin, end);
          });
        });
      }
    }
  }
  return passes;
}

}  // namespace bench
