// Which key a SlotCache evicts when it needs room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace ps {

using CacheKey = std::uint64_t;

// A SlotCache calls these functions with its lock held, so one policy serves one cache, needs no
// lock of its own, and must not call the cache. The order of eviction must depend on these calls
// alone, so that the same calls evict the same keys. If a function throws, the call of the cache
// fails with that exception; removed() must not throw.
class CachePolicy {
 public:
  CachePolicy() = default;
  CachePolicy(const CachePolicy&) = delete;
  CachePolicy& operator=(const CachePolicy&) = delete;
  virtual ~CachePolicy() = default;

  // The key was not cached and gets a slot.
  virtual void added(CacheKey key) = 0;
  // The key was acquired again while it had a slot.
  virtual void used(CacheKey key) = 0;
  // The key lost its slot: it was evicted, or filling the slot failed.
  virtual void removed(CacheKey key) noexcept = 0;

  // Calls `visit` with every key that has a slot and may be evicted, the best one to evict first,
  // until it returns false.
  virtual void victims(const std::function<bool(CacheKey)>& visit) const = 0;
  // Whether the key is never evicted.
  virtual bool keeps(CacheKey /*key*/) const { return false; }
};

// Evicts the key whose last use is longest ago.
std::unique_ptr<CachePolicy> lru_policy();

struct FrequencyPolicyOptions {
  // A use counts half as much after this many uses of any keys. At least 0.001: then only the last
  // use of a key counts.
  double half_life = 4096;
  // Counts are kept for this many keys, including keys that were evicted: a key that comes back
  // continues with its count. The keys with the lowest counts are forgotten first.
  std::size_t remembered = 65536;
};

// Evicts the key that was used least often, where recent uses count more; of keys with equal
// counts, the one whose last use is longest ago. Suits skewed uses, such as those of the experts of
// a model. Throws InvalidArgument unless half_life is finite and at least 0.001, and remembered is
// at least 1.
std::unique_ptr<CachePolicy> frequency_policy(FrequencyPolicyOptions options = {});

// Never evicts `pinned`, and chooses among the other keys as `others` does. Pinned keys come into
// the cache like others, when they are first acquired. Throws InvalidArgument if `others` is null.
std::unique_ptr<CachePolicy> pinned_policy(std::vector<CacheKey> pinned,
                                           std::unique_ptr<CachePolicy> others);

}  // namespace ps
