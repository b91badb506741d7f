#include "support/host_reads.h"

#include <cstring>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>

#if !defined(__clang__) && defined(__GNUC__) && __GNUC__ < 13  // which warns of its own headers
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#endif

namespace bench {
namespace {

constexpr std::size_t line = 64;
// A thread reads from four places in turn, which keeps more lines in flight than one.
constexpr std::size_t places = 4, part = 64 * 1024;

// The bits of four parts that follow each other.
using Read = std::uint64_t (*)(const std::byte* from);

std::uint64_t read_baseline(const std::byte* from) {
  std::uint64_t all = 0;
  for (std::size_t at = 0; at < part; at += sizeof(std::uint64_t)) {
    for (std::size_t place = 0; place < places; ++place) {
      std::uint64_t one = 0;
      std::memcpy(&one, from + place * part + at, sizeof one);
      all |= one;
    }
  }
  return all;
}

#if defined(__x86_64__)

__attribute__((target("avx2"))) std::uint64_t read_avx2(const std::byte* from) {
  __m256i all = _mm256_setzero_si256();
  for (std::size_t at = 0; at < part; at += line) {
    for (std::size_t place = 0; place < places; ++place) {
      const auto* const here = reinterpret_cast<const __m256i*>(from + place * part + at);
      all = _mm256_or_si256(all, _mm256_loadu_si256(here));
      all = _mm256_or_si256(all, _mm256_loadu_si256(here + 1));
    }
  }
  return static_cast<std::uint64_t>(_mm256_extract_epi64(all, 0));
}

__attribute__((target("avx512f"))) std::uint64_t read_avx512(const std::byte* from) {
  __m512i all = _mm512_setzero_si512();
  for (std::size_t at = 0; at < part; at += line) {
    for (std::size_t place = 0; place < places; ++place) {
      all = _mm512_or_si512(all, _mm512_loadu_si512(from + place * part + at));
    }
  }
  alignas(line) std::uint64_t words[line / sizeof(std::uint64_t)];
  _mm512_store_si512(words, all);
  return words[0];
}

Read choose_read() {
  if (__builtin_cpu_supports("avx512f")) return read_avx512;
  return __builtin_cpu_supports("avx2") ? read_avx2 : read_baseline;
}

#else

Read choose_read() { return read_baseline; }

#endif

}  // namespace

HostReads::HostReads(std::size_t threads, std::function<ps::MemoryView(std::uint64_t)> block)
    : block_(std::move(block)), counts_(std::make_unique<Count[]>(threads)) {
  const Read read = choose_read();
  for (std::size_t t = 0; t < threads; ++t) {
    threads_.emplace_back([this, read, count = &counts_[t].bytes] {
      std::uint64_t all = 0;
      while (!ending_) {
        const ps::MemoryView memory = block_(next_.fetch_add(1));
        for (std::size_t at = 0; at + places * part <= memory.bytes && !ending_;
             at += places * part) {
          all |= read(memory.data + at);
          *count += places * part;
        }
      }
      // The compiler must not leave out reads whose bits nobody uses.
      static std::atomic<std::uint64_t> used;
      used = all;
    });
  }
}

HostReads::~HostReads() {
  ending_ = true;
  for (std::thread& thread : threads_) thread.join();
}

std::uint64_t HostReads::bytes() const {
  std::uint64_t sum = 0;
  for (std::size_t t = 0; t < threads_.size(); ++t) sum += counts_[t].bytes;
  return sum;
}

}  // namespace bench
