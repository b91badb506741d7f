#include "penstock/host/cache_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <compare>
#include <limits>
#include <list>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "penstock/base/error.h"

namespace ps {
namespace {

// A count loses 1000 halves with every use of another key, which leaves the order of the last uses.
// A shorter half-life changes nothing but that the logarithms of counts overflow.
constexpr double least_half_life = 1e-3;

class LruPolicy final : public CachePolicy {
 public:
  void added(CacheKey key) override {
    order_.push_back(key);
    try {
      where_.emplace(key, std::prev(order_.end()));
    } catch (...) {
      order_.pop_back();
      throw;
    }
  }
  void used(CacheKey key) override { order_.splice(order_.end(), order_, where_.at(key)); }
  void removed(CacheKey key) noexcept override {
    const auto found = where_.find(key);
    if (found == where_.end()) return;
    order_.erase(found->second);
    where_.erase(found);
  }
  void victims(const std::function<bool(CacheKey)>& visit) const override {
    for (const CacheKey key : order_) {
      if (!visit(key)) return;
    }
  }

 private:
  std::list<CacheKey> order_;  // the last use of the first one is longest ago
  std::unordered_map<CacheKey, std::list<CacheKey>::iterator> where_;
};

// The count of a key at time t is the sum over its uses u of 2^-((t - u) / half_life). All counts
// decay by the same factor, so their order changes only with uses, and a set can be kept sorted by
// the count as seen from time 0. Its logarithm is stored, since the count itself would overflow.
class FrequencyPolicy final : public CachePolicy {
 public:
  explicit FrequencyPolicy(const FrequencyPolicyOptions& options) : options_(options) {}

  void added(CacheKey key) override {
    count(key);
    Count& entry = counts_.at(key);
    cached_.insert(gone_.extract(rank(key, entry)));
    entry.cached = true;
    forget();
  }
  void used(CacheKey key) override { count(key); }
  void removed(CacheKey key) noexcept override {
    const auto found = counts_.find(key);
    if (found == counts_.end() || !found->second.cached) return;
    found->second.cached = false;
    gone_.insert(cached_.extract(rank(key, found->second)));  // moves a node: cannot fail
  }
  void victims(const std::function<bool(CacheKey)>& visit) const override {
    for (const Rank& rank : cached_) {
      if (!visit(rank.key)) return;
    }
  }

 private:
  struct Count {
    double log2 = -std::numeric_limits<double>::infinity();  // of the count, seen from time 0
    std::uint64_t last_use = 0;
    bool cached = false;
  };
  struct Rank {
    double log2;
    std::uint64_t last_use;
    CacheKey key;

    friend auto operator<=>(const Rank&, const Rank&) = default;
  };
  static Rank rank(CacheKey key, const Count& count) { return {count.log2, count.last_use, key}; }

  // Counts one more use. Adds a key that is new to those that are not cached.
  void count(CacheKey key) {
    const auto [found, is_new] = counts_.try_emplace(key);
    Count& entry = found->second;
    if (is_new) {
      try {
        gone_.insert(rank(key, entry));
      } catch (...) {
        counts_.erase(found);
        throw;
      }
    }
    std::set<Rank>& ranks = entry.cached ? cached_ : gone_;
    auto node = ranks.extract(rank(key, entry));
    const double now = static_cast<double>(++uses_) / options_.half_life;
    const double high = std::max(entry.log2, now), low = std::min(entry.log2, now);
    entry.log2 = high + std::log2(1 + std::exp2(low - high));
    entry.last_use = uses_;
    node.value() = rank(key, entry);
    ranks.insert(std::move(node));
  }

  void forget() noexcept {
    while (counts_.size() > options_.remembered && !gone_.empty()) {
      counts_.erase(gone_.begin()->key);
      gone_.erase(gone_.begin());
    }
  }

  const FrequencyPolicyOptions options_;
  std::uint64_t uses_ = 0;
  std::unordered_map<CacheKey, Count> counts_;
  std::set<Rank> cached_, gone_;  // every key of counts_ is in one of them
};

class PinnedPolicy final : public CachePolicy {
 public:
  PinnedPolicy(std::vector<CacheKey> pinned, std::unique_ptr<CachePolicy> others)
      : pinned_(pinned.begin(), pinned.end()), others_(std::move(others)) {}

  void added(CacheKey key) override {
    if (!pinned_.contains(key)) others_->added(key);
  }
  void used(CacheKey key) override {
    if (!pinned_.contains(key)) others_->used(key);
  }
  void removed(CacheKey key) noexcept override {
    if (!pinned_.contains(key)) others_->removed(key);
  }
  void victims(const std::function<bool(CacheKey)>& visit) const override {
    others_->victims(visit);
  }
  bool keeps(CacheKey key) const override { return pinned_.contains(key) || others_->keeps(key); }

 private:
  std::unordered_set<CacheKey> pinned_;
  std::unique_ptr<CachePolicy> others_;
};

}  // namespace

std::unique_ptr<CachePolicy> lru_policy() { return std::make_unique<LruPolicy>(); }

std::unique_ptr<CachePolicy> frequency_policy(FrequencyPolicyOptions options) {
  if (!(options.half_life >= least_half_life) || std::isinf(options.half_life)) {
    detail::throw_invalid("half_life",
                          fmt::format("a finite number of uses, at least {}", least_half_life),
                          fmt::format("{}", options.half_life));
  }
  if (options.remembered == 0) detail::throw_invalid("remembered", "at least 1 key", "0");
  return std::make_unique<FrequencyPolicy>(options);
}

std::unique_ptr<CachePolicy> pinned_policy(std::vector<CacheKey> pinned,
                                           std::unique_ptr<CachePolicy> others) {
  if (others == nullptr) detail::throw_invalid("others", "a policy", "null");
  return std::make_unique<PinnedPolicy>(std::move(pinned), std::move(others));
}

}  // namespace ps
