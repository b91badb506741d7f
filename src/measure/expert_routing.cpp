#include "penstock/measure/expert_routing.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <utility>

namespace ps {

std::vector<std::vector<double>> zipf_shares(std::int64_t layers, std::int64_t experts,
                                             std::mt19937_64& random) {
  std::vector<std::vector<double>> shares;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    std::vector<double>& mine = shares.emplace_back();
    for (std::int64_t rank = 1; rank <= experts; ++rank) {
      mine.push_back(1.0 / static_cast<double>(rank));
    }
    std::shuffle(mine.begin(), mine.end(), random);
  }
  return shares;
}

std::vector<std::int32_t> draw_experts(std::int64_t tokens, std::int64_t choices,
                                       std::span<const double> shares, std::mt19937_64& random) {
  std::vector<std::int32_t> ids;
  for (std::int64_t t = 0; t < tokens; ++t) {
    std::set<std::int32_t> chosen;
    std::discrete_distribution<std::int32_t> one(shares.begin(), shares.end());
    while (std::cmp_less(chosen.size(), choices)) chosen.insert(one(random));
    ids.insert(ids.end(), chosen.begin(), chosen.end());
  }
  return ids;
}

std::uint64_t best_fixed_set(std::span<const std::int64_t> accesses, std::size_t slots) {
  std::map<std::int64_t, std::uint64_t> uses;
  for (const std::int64_t key : accesses) ++uses[key];
  std::vector<std::uint64_t> counts;
  for (const auto& [key, count] : uses) counts.push_back(count);
  std::sort(counts.rbegin(), counts.rend());
  counts.resize(std::min(counts.size(), slots));
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

std::uint64_t offline_optimum(std::span<const std::int64_t> accesses, std::size_t slots,
                              std::size_t from) {
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

}  // namespace ps
