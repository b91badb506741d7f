// The decisions of round_routes(), for the CPU and GPUs alike.
//
// A key says what a token is to an expert: the bits of its weight, which for positive numbers are
// in the order of the weights, and whether the token chose the expert. Key 0: the expert cannot
// take the token.
#pragma once

#include <cstdint>

#include "ops/route/score.h"
#include "penstock/kit/config.h"

namespace ps::rounding {

inline constexpr std::uint32_t chosen_bit = 0x80000000U;

PENSTOCK_HD inline std::uint32_t weight_key(float weight) {
  return weight > 0 ? routing::bits_of(weight) : 0;
}
PENSTOCK_HD inline float weight_of(std::uint32_t key) { return routing::float_of(key); }

// The weight that an expert with this logit would have for a token whose first choice has
// `first_weight` and `first_logit`. Both logits are usable() ones.
PENSTOCK_HD inline float taken_weight(bool sigmoid, float logit, float first_logit,
                                      float first_weight) {
  if (sigmoid) {
    const float first = routing::sigmoid(first_logit);
    return first > 0 ? routing::quotient(first_weight * routing::sigmoid(logit), first) : 0.0F;
  }
  const float below = logit - first_logit;
  return first_weight * routing::exponential(below < 0 ? below : 0.0F);
}

// What an expert does. Tokens are taken (change > 0) or dropped (change < 0) in the order of their
// keys, up to and including the one with this key and index.
struct Cut {
  std::int32_t change = 0;
  std::uint32_t key = 0;
  std::uint32_t token = 0;
  std::uint32_t refused = 0;  // a token that it would take has no place for it

  PENSTOCK_HD bool takes(std::uint32_t other, std::uint32_t index) const {
    if (change <= 0 || other == 0 || (other & chosen_bit) != 0) return false;
    return other > key || (other == key && index <= token);
  }
  // `other` is the key of a token that chose the expert.
  PENSTOCK_HD bool drops(std::uint32_t other, std::uint32_t index) const {
    if (change >= 0) return false;
    return other < key || (other == key && index >= token);
  }
};

// The free places of a token go to the experts with the largest claims: the largest weights; of
// equal weights, to the smaller indices. `key` is that of an expert that takes the token.
PENSTOCK_HD inline std::uint64_t claim(std::uint32_t key, int expert) {
  return std::uint64_t{key} << 32 | ~static_cast<std::uint32_t>(expert);
}

// By how much an expert's number of tokens changes. `available` tokens can be taken.
PENSTOCK_HD inline std::int32_t rounded_change(std::int64_t count, std::int64_t available,
                                               std::int64_t tile, bool refused) {
  const std::int64_t over = count % tile, missing = tile - over;
  if (over == 0) return 0;
  const bool up = missing <= over && missing <= available && !refused;
  return static_cast<std::int32_t>(up ? missing : -over);
}

}  // namespace ps::rounding
