// Routing of expert layers that is drawn instead of computed, and the hit rates that a cache of
// their experts can be compared with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace ps {

// How likely each expert of each layer is: by Zipf's law with exponent 1, in a random order of its
// own per layer. Shares are not normalised.
std::vector<std::vector<double>> zipf_shares(std::int64_t layers, std::int64_t experts,
                                             std::mt19937_64& random);

// The experts of each token, drawn without repetition with these shares and sorted; `choices`, at
// most as many as there are shares, for each of `tokens` tokens.
std::vector<std::int32_t> draw_experts(std::int64_t tokens, std::int64_t choices,
                                       std::span<const double> shares, std::mt19937_64& random);

// Hits of the best set of `slots` keys that is there from the beginning and never changes: those
// that are used most often.
std::uint64_t best_fixed_set(std::span<const std::int64_t> accesses, std::size_t slots);

// Hits among accesses[from] and later, of a cache that is empty before accesses[0], holds `slots`
// keys and knows what comes next (Belady's MIN): no cache has more. It evicts the key whose next
// use is the furthest away, or does not keep the new one if that is the one.
std::uint64_t offline_optimum(std::span<const std::int64_t> accesses, std::size_t slots,
                              std::size_t from = 0);

}  // namespace ps
