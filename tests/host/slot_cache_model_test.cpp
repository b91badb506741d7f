// Random calls and completions, compared step by step with a model of the cache that is as simple
// as possible: an array with the owner of every granule, and a list of keys by last use.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <list>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "penstock/host/slot_cache.h"
#include "support/stepped_stream.h"
#include "support/watchdog.h"

namespace ps::test {
namespace {

struct ModelSlot {
  CacheKey key = 0;
  std::size_t begin = 0, granules = 0;
  int handles = 0, in_flight = 0;
  bool filled = false, failed = false;
};

class Model {
 public:
  Model(std::size_t granules, std::set<CacheKey> pinned)
      : owners_(granules, -1), pinned_(std::move(pinned)) {}

  struct Outcome {
    int slot = -1;
    bool hit = false;
  };

  Outcome acquire(CacheKey key, std::size_t granules) {
    if (const int slot = find(key); slot >= 0) {
      ++hits;
      order_.remove(key);
      order_.push_back(key);
      ++slots_[slot].handles;
      return {slot, true};
    }
    notice_completions();
    auto begin = best_fit(granules);
    if (!begin) begin = evict_for(granules);
    if (!begin) {
      ++exhausted;
      return {};
    }
    ++misses;
    const int slot = next_++;
    slots_[slot] = {.key = key, .begin = *begin, .granules = granules, .handles = 1};
    std::fill_n(owners_.begin() + static_cast<std::ptrdiff_t>(*begin), granules, slot);
    order_.push_back(key);
    return {slot, false};
  }

  // Work that uses the slot begins; it ends with complete(). The cache notices that at a miss.
  void begin_use(int slot) { ++slots_[slot].in_flight; }
  void complete(int slot, bool fills) { completed_.emplace_back(slot, fills); }
  void release(int slot) {
    --slots_[slot].handles;
    drop_if_failed(slot);
  }
  void fill(int slot) { slots_[slot].filled = true; }
  void fail(int slot) {
    ++failed_fills;
    slots_[slot].failed = true;
    order_.remove(slots_[slot].key);
    release(slot);
  }

  int find(CacheKey key) const {
    for (const auto& [number, slot] : slots_) {
      if (slot.key == key && !slot.failed) return number;
    }
    return -1;
  }
  const ModelSlot& at(int slot) const { return slots_.at(slot); }
  std::size_t taken() const {
    return static_cast<std::size_t>(
        std::count_if(owners_.begin(), owners_.end(), [](int owner) { return owner >= 0; }));
  }
  std::size_t keys() const { return order_.size(); }

  std::uint64_t hits = 0, misses = 0, evictions = 0, exhausted = 0, failed_fills = 0;

 private:
  void notice_completions() {
    for (const auto& [slot, fills] : completed_) {
      --slots_[slot].in_flight;
      if (fills) slots_[slot].filled = true;
      drop_if_failed(slot);
    }
    completed_.clear();
  }
  void drop(int slot) {
    std::replace(owners_.begin(), owners_.end(), slot, -1);
    slots_.erase(slot);
  }
  void drop_if_failed(int slot) {
    const ModelSlot& s = slots_[slot];
    if (s.failed && s.handles == 0 && s.in_flight == 0) drop(slot);
  }

  // The run of free granules that begins here.
  static std::size_t run(const std::vector<int>& owners, std::size_t begin) {
    std::size_t end = begin;
    while (end < owners.size() && owners[end] < 0) ++end;
    return end - begin;
  }
  std::optional<std::size_t> best_fit(std::size_t granules) const {
    std::optional<std::size_t> best;
    std::size_t least = 0;
    for (std::size_t i = 0; i < owners_.size(); i += std::max<std::size_t>(run(owners_, i), 1)) {
      const std::size_t length = run(owners_, i);
      if (length >= granules && (!best || length < least)) {
        best = i;
        least = length;
      }
    }
    return best;
  }
  std::optional<std::size_t> evict_for(std::size_t granules) {
    std::vector<int> trial = owners_;
    for (const CacheKey key : order_) {
      const int slot = find(key);
      const ModelSlot& s = slots_[slot];
      if (pinned_.contains(key) || !s.filled || s.handles != 0 || s.in_flight != 0) continue;
      std::replace(trial.begin(), trial.end(), slot, -1);
      std::size_t begin = s.begin;
      while (begin > 0 && trial[begin - 1] < 0) --begin;
      if (run(trial, begin) < granules) continue;
      for (std::size_t i = begin; i < begin + granules; ++i) {
        if (owners_[i] < 0) continue;
        ++evictions;
        order_.remove(slots_[owners_[i]].key);
        drop(owners_[i]);
      }
      return begin;
    }
    return std::nullopt;
  }

  std::vector<int> owners_;  // -1: free
  std::map<int, ModelSlot> slots_;
  std::list<CacheKey> order_;
  std::set<CacheKey> pinned_;
  std::vector<std::pair<int, bool>> completed_;
  int next_ = 0;
};

// Runs the cache and the model side by side.
class Comparison {
 public:
  Comparison(unsigned seed, std::size_t granules, std::size_t largest, std::set<CacheKey> pinned)
      : random_(seed),
        largest_(largest),
        memory_(granules * granule),
        cache_(Device::cpu(), {memory_.data(), memory_.size(), {}}, options(pinned)),
        model_(granules, pinned) {}
  ~Comparison() {
    for (SteppedStream& stream : streams_) stream.complete_all();  // the cache waits for them
  }
  Comparison(const Comparison&) = delete;
  Comparison& operator=(const Comparison&) = delete;

  void step() {
    switch (random_() % 10) {
      case 0:
      case 1:
      case 2:
      case 3:
        acquire();
        break;
      case 4:
      case 5:
      case 6:
        act_on_a_handle();
        break;
      default:
        complete_some();
    }
    compare();
  }

 private:
  static constexpr std::size_t granule = 16, keys = 24, streams = 3;

  struct Handle {
    SlotCache::Slot slot;
    int model;
    bool must_fill;
  };
  struct Piece {
    int slot;
    bool fills;
  };

  static SlotCacheOptions options(const std::set<CacheKey>& pinned) {
    SlotCacheOptions result{.granularity = granule, .when_exhausted = WhenExhausted::fail};
    result.policy = pinned_policy({pinned.begin(), pinned.end()}, lru_policy());
    return result;
  }

  void acquire() {
    const CacheKey key = random_() % keys;
    const std::size_t granules = 1 + key * 7 % largest_;  // every key has its size
    const std::size_t bytes = granules * granule - random_() % 2 * (key % granule);
    const int known = model_.find(key);
    const std::size_t size = known >= 0 ? sizes_.at(known) : bytes;
    const Model::Outcome expected = model_.acquire(key, granules);
    auto slot = cache_.try_acquire(key, size);
    ASSERT_EQ(slot.has_value(), expected.slot >= 0);
    // A miss notices all completed work, so the bytes of failed slots are back.
    if (!expected.hit) {
      ASSERT_EQ(cache_.statistics().bytes, model_.taken() * granule);
    }
    if (!slot) return;
    ASSERT_EQ(slot->hit(), expected.hit);
    ASSERT_EQ(slot->index(), model_.at(expected.slot).begin);
    sizes_[expected.slot] = size;
    handles_.push_back({std::move(*slot), expected.slot, !expected.hit});
  }

  void act_on_a_handle() {
    if (handles_.empty()) return;
    std::swap(handles_[random_() % handles_.size()], handles_.back());
    Handle& handle = handles_.back();
    const std::size_t which = random_() % streams;
    SteppedStream& stream = streams_[which];
    const bool after = random_() % 2 == 0;
    if (handle.must_fill) {
      handle.must_fill = false;
      const auto outcome = random_() % 5;
      if (outcome == 0) {
        fail(handle, which, after);
        handles_.pop_back();
      } else if (after) {
        begin_use(handle.model, which, true);
        handle.slot.filled(stream.stream());
        stream.mark();
      } else {
        model_.fill(handle.model);
        handle.slot.filled();
      }
      return;
    }
    if (after) {
      begin_use(handle.model, which, false);
      handle.slot.release_after(stream.stream());
      stream.mark();
    } else {
      handle.slot.release();
    }
    model_.release(handle.model);
    handles_.pop_back();
  }

  void fail(Handle& handle, std::size_t which, bool after) {
    const auto error = std::make_exception_ptr(std::domain_error("fill"));
    if (after) {
      begin_use(handle.model, which, false);
      handle.slot.fail_after(streams_[which].stream(), error);
      streams_[which].mark();
    } else {
      handle.slot.fail(error);
    }
    model_.fail(handle.model);
  }

  void begin_use(int slot, std::size_t which, bool fills) {
    streams_[which].enqueue();
    pieces_[which].push_back({slot, fills});
    model_.begin_use(slot);
  }

  void complete_some() {
    const std::size_t which = random_() % streams;
    if (pieces_[which].empty()) return;
    streams_[which].complete_next();
    model_.complete(pieces_[which].front().slot, pieces_[which].front().fills);
    pieces_[which].pop_front();
  }

  void compare() {
    const SlotCacheStatistics statistics = cache_.statistics();
    ASSERT_EQ(statistics.hits, model_.hits);
    ASSERT_EQ(statistics.misses, model_.misses);
    ASSERT_EQ(statistics.evictions, model_.evictions);
    ASSERT_EQ(statistics.exhausted, model_.exhausted);
    ASSERT_EQ(statistics.failed_fills, model_.failed_fills);
    ASSERT_EQ(statistics.keys, model_.keys());
    for (CacheKey key = 0; key < keys; ++key) {
      const auto found = cache_.find(key);
      const int slot = model_.find(key);
      ASSERT_EQ(found.has_value(), slot >= 0) << "key " << key;
      if (found) {
        ASSERT_EQ(found->index, model_.at(slot).begin) << "key " << key;
      }
    }
  }

  std::mt19937 random_;
  std::size_t largest_;
  std::vector<std::byte> memory_;
  std::array<SteppedStream, streams> streams_;
  std::array<std::list<Piece>, streams> pieces_;
  std::map<int, std::size_t> sizes_;
  SlotCache cache_;
  Model model_;
  std::vector<Handle> handles_;
};

void compare(std::size_t granules, std::size_t largest, const std::set<CacheKey>& pinned) {
  Watchdog watchdog("SlotCacheModel");
  for (unsigned seed = 1; seed <= 15; ++seed) {
    watchdog.step("seed " + std::to_string(seed));
    Comparison comparison(seed, granules, largest, pinned);
    for (int step = 0; step < 1500; ++step) {
      comparison.step();
      if (testing::Test::HasFatalFailure()) {
        FAIL() << "seed " << seed << ", step " << step;
      }
    }
  }
}

TEST(SlotCacheModel, SlotsOfOneSize) { compare(8, 1, {}); }
TEST(SlotCacheModel, SlotsOfManySizes) { compare(30, 7, {}); }
TEST(SlotCacheModel, WithPinnedKeys) { compare(30, 5, {3, 11, 17}); }

}  // namespace
}  // namespace ps::test
