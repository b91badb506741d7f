#include "support/memory_mix.h"

#include <algorithm>
#include <cstring>

#include "penstock/base/checked.h"
#include "penstock/base/units.h"
#include "penstock/host/parallel.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace bench {
namespace {

constexpr std::size_t line = 64;

struct Way {
  std::size_t streams;  // places that are read from in turn: more of them keep more lines in flight
  std::size_t block;    // lines that are written before the next are read
  bool past_caches;
};

// Writes lines [begin, end) of mix.to and reads as large a share of mix.from.
using MoveLines = void (*)(const MemoryMix& mix, const Way& way, std::size_t begin,
                           std::size_t end);

// Correct everywhere; fast nowhere.
void move_baseline(const MemoryMix& mix, const Way& way, std::size_t begin, std::size_t end) {
  const std::size_t writes = mix.to.bytes / line, part = mix.from.bytes / line / way.streams;
  std::size_t all[line / sizeof(std::size_t)] = {};
  for (std::size_t at = begin; at < end; at += way.block) {
    const std::size_t next = std::min(at + way.block, end);
    for (std::size_t i = at * part / writes; i < next * part / writes; ++i) {
      for (std::size_t stream = 0; stream < way.streams; ++stream) {
        std::size_t one[line / sizeof(std::size_t)];
        std::memcpy(one, mix.from.data + (stream * part + i) * line, line);
        for (std::size_t word = 0; word < line / sizeof(std::size_t); ++word)
          all[word] |= one[word];
      }
    }
    for (std::size_t i = at; i < next; ++i) std::memcpy(mix.to.data + i * line, all, line);
  }
}

#if defined(__x86_64__)

__attribute__((target("avx2"))) void move_avx2(const MemoryMix& mix, const Way& way,
                                               std::size_t begin, std::size_t end) {
  const std::size_t writes = mix.to.bytes / line, part = mix.from.bytes / line / way.streams;
  __m256i low = _mm256_setzero_si256(), high = low;
  for (std::size_t at = begin; at < end; at += way.block) {
    const std::size_t next = std::min(at + way.block, end);
    const std::size_t last = next * part / writes;
    for (std::size_t i = at * part / writes; i < last; ++i) {
      for (std::size_t stream = 0; stream < way.streams; ++stream) {
        const auto* const from =
            reinterpret_cast<const __m256i*>(mix.from.data + (stream * part + i) * line);
        low = _mm256_or_si256(low, _mm256_loadu_si256(from));
        high = _mm256_or_si256(high, _mm256_loadu_si256(from + 1));
      }
    }
    for (std::size_t i = at; i < next; ++i) {
      auto* const to = reinterpret_cast<__m256i*>(mix.to.data + i * line);
      if (way.past_caches) {
        _mm256_stream_si256(to, low);
        _mm256_stream_si256(to + 1, high);
      } else {
        _mm256_store_si256(to, low);
        _mm256_store_si256(to + 1, high);
      }
    }
  }
  _mm_sfence();
}

MoveLines choose_move() { return __builtin_cpu_supports("avx2") ? move_avx2 : move_baseline; }

#else

MoveLines choose_move() { return move_baseline; }

#endif

// Calls work(begin, end) for all of `count`, on one thread or in ranges of at least `grain`.
void in_ranges(const MemoryMix& mix, std::size_t count, std::size_t grain,
               const std::function<void(std::size_t, std::size_t)>& work) {
  if (mix.one_thread) return work(0, count);
  ps::parallel_ranges(count, grain, work);
}

}  // namespace

std::vector<std::function<void()>> memory_passes(const MemoryMix& mix) {
  const MoveLines move = choose_move();
  const std::size_t lines = mix.to.bytes / line;
  const std::size_t share = ps::ceil_div(lines, ps::parallel_threads());
  std::vector<std::size_t> grains{std::max<std::size_t>(share, 1)};
  if (!mix.one_thread) grains.push_back(256 * ps::KiB / line);
  std::vector<std::function<void()>> passes;
  for (const bool past_caches : {false, true}) {
    for (const std::size_t streams : {1, 2, 4}) {
      for (const std::size_t block : {256 / line, 16 * ps::KiB / line}) {
        for (const std::size_t grain : grains) {
          const Way way{.streams = streams, .block = block, .past_caches = past_caches};
          passes.emplace_back([=] {
            in_ranges(mix, lines, grain,
                      [&](std::size_t begin, std::size_t end) { move(mix, way, begin, end); });
          });
        }
      }
    }
  }
  return passes;
}

}  // namespace bench
