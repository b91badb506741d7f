// What the CPU's compress() and decompress() share.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ops/compress/format.h"
#include "penstock/host/parallel.h"

namespace ps::compression {

// The entries of a list, with room for whole words after the last one.
using List = std::array<std::uint8_t, segment_values + word_codes>;

inline std::uint32_t read_word(const std::byte* from) {
  std::uint32_t word = 0;
  std::memcpy(&word, from, sizeof word);
  return word;
}
inline void write_word(std::byte* to, std::uint32_t word) { std::memcpy(to, &word, sizeof word); }

// Calls work(segment, its number of values) for every segment, on all cores.
template <class Work>
void for_segments(std::uint64_t elements, const Work& work) {
  constexpr std::size_t grain = 16;  // fewer are not worth waking a thread for
  parallel_ranges(segments_of(elements), grain, [&](std::size_t begin, std::size_t end) {
    for (std::size_t s = begin; s < end; ++s) work(s, values_of(elements, s));
  });
}

}  // namespace ps::compression
