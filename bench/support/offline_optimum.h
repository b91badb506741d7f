// The most hits that any cache could have had: a replay that knows what comes next (Belady's MIN).
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace bench {

// Hits among accesses[from] and later, of a cache that is empty before accesses[0] and holds
// `slots` keys. It evicts the key whose next use is the furthest away, or does not keep the new one
// if that is the one.
inline std::uint64_t offline_optimum(const std::vector<std::int64_t>& accesses, std::size_t slots,
                                     std::size_t from = 0) {
  constexpr std::size_t never = std::numeric_limits<std::size_t>::max();
  std::vector<std::size_t> next(accesses.size(), never);
  std::map<std::int64_t, std::size_t> seen;  // the first use that comes later
  for (std::size_t i = accesses.size(); i-- > 0;) {
    const auto [at, is_new] = seen.try_emplace(accesses[i], i);
    if (!is_new) next[i] = std::exchange(at->second, i);
  }
  std::set<std::pair<std::size_t, std::int64_t>> kept;  // next use and key
  std::uint64_t hits = 0;
  for (std::size_t i = 0; i < accesses.size(); ++i) {
    const bool hit = kept.erase({i, accesses[i]}) > 0;
    if (hit && i >= from) ++hits;
    if (next[i] != never) kept.emplace(next[i], accesses[i]);
    if (kept.size() > slots) kept.erase(std::prev(kept.end()));
  }
  return hits;
}

}  // namespace bench
