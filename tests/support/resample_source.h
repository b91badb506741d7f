// A sensor of a random call, and how to read it.
#pragma once

#include <cstdint>
#include <vector>

#include "support/resample_reference.h"
#include "support/strided.h"

namespace ps::test {

struct ResampleSource {
  Strided values, times, lengths;        // the last: or offsets
  bool ragged = false, limited = false;  // with offsets, or with lengths
  std::int64_t samples = 0, columns = 0;

  std::int64_t length(std::int64_t i) const {
    const std::uint64_t bits = lengths.bits({i});
    return lengths.type() == DType::i32
               ? std::int64_t{static_cast<std::int32_t>(static_cast<std::uint32_t>(bits))}
               : static_cast<std::int64_t>(bits);
  }

  std::int64_t begin_of(std::int64_t episode) const { return ragged ? length(episode) : 0; }

  // A wrong length counts as 0.
  std::int64_t count_of(std::int64_t episode) const {
    if (ragged) return length(episode + 1) - length(episode);
    if (!limited) return samples;
    const std::int64_t count = length(episode);
    return count < 0 || count > samples ? 0 : count;
  }

  std::vector<Moment> moments(std::int64_t episode) const {
    const bool shared = times.shape().size() == 1;
    std::vector<Moment> all;
    for (std::int64_t i = 0; i < count_of(episode); ++i) {
      const std::int64_t row = begin_of(episode) + i;
      all.push_back(
          moment(times.bits(shared ? std::vector{row} : std::vector{episode, row}), times.type()));
    }
    return all;
  }
};

}  // namespace ps::test
