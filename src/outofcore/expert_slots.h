// Which experts are in which slots of device memory. Used by one thread. All slots have the same
// size and are filled by one stream, so there is nothing to wait for on the host: a slot that is
// still being read is given away with its readers, which the next copy must wait for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "penstock/host/cache_policy.h"

namespace ps::detail {

struct ExpertCall;

class ExpertSlots {
 public:
  using Key = std::int64_t;  // layer * E + expert
  static constexpr Key none = -1;

  // A group that reads a slot, unless the call has another number by now: then it is over.
  struct Reader {
    const ExpertCall* call = nullptr;
    std::uint32_t number = 0;
    std::size_t group = 0;
  };

  struct Slot {
    Key key = none;
    std::uint32_t copy = 0;  // the number of the copy that fills it
    bool ready = false;      // that copy is known to be complete
    bool held = false;       // waits for its group: not to be evicted
    bool unused = false;     // prefetched, and no call has used it
    bool scanned = false;    // came with a call that used all experts of its layer
    std::vector<Reader> readers{};
  };

  // Whether a slot may be evicted for the key that asks for one.
  using Evictable = std::function<bool(const Slot&)>;

  ExpertSlots(std::size_t slots, std::size_t keys, std::unique_ptr<CachePolicy> policy);

  std::size_t count() const { return slots_.size(); }
  Slot& operator[](std::size_t slot) { return slots_[slot]; }

  // The slot of a key, or -1.
  std::int64_t find(Key key) const { return where_[static_cast<std::size_t>(key)]; }
  void used(Key key) { policy_->used(static_cast<CacheKey>(key)); }

  // A slot for a key that has none, or -1. With `scan`, the key is one of a whole layer: it
  // replaces keys that came in the same way, if there are `scan_slots` of them, so that going
  // through the layers does not evict everything else.
  std::int64_t take(Key key, bool scan, std::size_t scan_slots, const Evictable& evictable);
  // The slot becomes free.
  void drop(std::size_t slot);

  std::uint64_t evicted() const { return evicted_; }
  std::uint64_t wasted() const { return wasted_; }

 private:
  std::int64_t victim(bool scan, std::size_t scan_slots, const Evictable& evictable);

  std::vector<Slot> slots_;
  std::vector<std::int32_t> where_;  // by key
  std::vector<std::size_t> free_;
  std::unique_ptr<CachePolicy> policy_;
  struct Scanned {
    std::size_t slot;
    Key key;
  };
  std::deque<Scanned> scanned_;  // in the order in which they came; the key may be gone
  std::uint64_t evicted_ = 0, wasted_ = 0;
};

}  // namespace ps::detail
