// A cache of keyed slots in one range of memory, for example of experts in spare device memory.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>

#include "penstock/base/view.h"
#include "penstock/host/cache_policy.h"
#include "penstock/host/event.h"
#include "penstock/host/slot_ring.h"
#include "penstock/host/stream.h"

namespace ps {

namespace detail {
class SlotCacheState;
struct CachedSlot;
}  // namespace detail

struct SlotCacheOptions {
  // Slots begin at multiples of this many bytes and take whole multiples of it. If all slots have
  // the same size, set it to that size: slots then lie side by side and memory never fragments.
  std::size_t granularity = 256;
  std::unique_ptr<CachePolicy> policy{};  // null: lru_policy()
  WhenExhausted when_exhausted = WhenExhausted::wait;
};

struct SlotCacheStatistics {
  std::uint64_t hits = 0;
  std::uint64_t shared_fills = 0;  // hits on a slot that another handle had yet to fill
  std::uint64_t misses = 0;
  std::uint64_t missed_bytes = 0;  // the sum of the sizes of all misses
  std::uint64_t evictions = 0;
  std::uint64_t failed_fills = 0;
  std::uint64_t exhausted = 0;  // calls that found no room
  std::size_t keys = 0;         // that have a slot now
  // Taken by slots now, in whole granules. A slot whose fill failed counts until the cache notices,
  // at the next miss, that the work on it has completed.
  std::size_t bytes = 0;
  std::size_t capacity = 0;  // bytes that slots can take
};

// Thrown to those who wait for a slot whose handle was dropped before it was filled.
class FillAbandoned : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Maps keys to slots. On a miss the caller fills the slot, and everybody else who acquires the key
// gets the same slot. A slot is evicted only when nobody holds it, it is filled, and the work of
// all its readers has completed; slots become evictable in the order of completion, not of release.
//
// Memory: a slot gets the smallest free range that fits, at its beginning, and free neighbours are
// merged. If no free range fits, slots are evicted: those that, in the order of the policy, first
// make a range that is large enough. With slots of different sizes, slots that are in use can lie
// between free ranges that are too small; acquire() then waits for them, or fails.
//
// The same calls and completions in the same order give the same slots and evictions.
//
// Thread-safe. The cache has no thread of its own: acquire() asks the device which work has
// completed when it needs room.
class SlotCache {
 public:
  // An acquired slot. Move-only; use one handle from one thread at a time. The slot stays where it
  // is while a handle exists. The destructor calls release().
  class Slot {
   public:
    Slot(Slot&& other) noexcept;
    Slot& operator=(Slot&& other) noexcept;
    ~Slot();

    // False: this handle must fill the slot and call filled() or fail().
    bool hit() const { return hit_; }
    CacheKey key() const;
    MemoryView view() const;
    // The slot's offset divided by the granularity: with slots of one size, a number in
    // [0, capacity / granularity) that no other key has at the same time.
    std::size_t index() const;

    // --- the handle that got a miss ---
    // The slot holds its contents now.
    void filled();
    // It does once the work enqueued on `stream` so far has completed.
    void filled(const Stream& stream);
    // It does once `event` is reached, which must have been recorded and must not be recorded again
    // before that.
    void filled(const Event& event);
    // Filling failed: removes the key, releases this handle, and gives `error` to those who wait
    // for the slot. No work on the slot may be in flight.
    void fail(std::exception_ptr error);
    // As fail(), if work enqueued on `stream` may still write to the slot.
    void fail_after(const Stream& stream, std::exception_ptr error);

    // --- readers ---
    // Makes work enqueued on `stream` from now on wait for the contents. Blocks the calling thread
    // only until the filling handle calls filled() or fail(). Throws the error of a failed fill.
    void join(const Stream& stream) const;
    // Blocks until the contents are there. Throws the error of a failed fill.
    void wait() const;
    // Whether the contents are there. Never blocks. Throws the error of a failed fill.
    bool ready() const;

    // Releases the slot; it can be evicted once the work enqueued on `stream` so far has completed.
    // Does not block. Throws InvalidArgument if this handle had to fill the slot and did not.
    void release_after(const Stream& stream);
    // Releases the slot now. If this handle had to fill it and did not, the fill fails with
    // FillAbandoned.
    void release() noexcept;

   private:
    friend class SlotCache;
    Slot(std::shared_ptr<detail::SlotCacheState> state, std::shared_ptr<detail::CachedSlot> slot,
         bool hit);
    detail::CachedSlot& held() const;
    void check_filling() const;

    std::shared_ptr<detail::SlotCacheState> state_;
    std::shared_ptr<detail::CachedSlot> slot_;
    bool hit_ = false;
    bool must_fill_ = false;
  };

  // What find() tells about a key.
  struct Found {
    std::size_t index = 0;  // as Slot::index()
    std::size_t bytes = 0;
    bool filled = false;  // false while another handle has yet to fill it
  };

  // `memory` is page-locked or host memory, or memory of `device`; the caller keeps it alive as
  // long as the cache and its handles. All streams and events must be of `device`. Throws
  // InvalidArgument.
  SlotCache(const Device& device, MemoryView memory, SlotCacheOptions options = {});
  // Waits for the work of handles that were released after it. Handles that are still held stay
  // valid.
  ~SlotCache();
  SlotCache(const SlotCache&) = delete;
  SlotCache& operator=(const SlotCache&) = delete;

  // The slot of `key`, with room for `bytes`. Never waits for a slot to be filled. On a miss
  // without room, blocks or throws Exhausted, as `when_exhausted` says; throws Exhausted also if
  // waiting cannot help because of keys that the policy keeps. Threads that wait are served in the
  // order of their calls, except that one whose slot does not fit does not hold up the others.
  // Throws InvalidArgument for zero bytes, more than the capacity, and a size other than that of
  // the cached slot; DeviceError, once, if work on a slot failed; Unsupported if a CUDA graph is
  // being captured and the device cannot be asked.
  Slot acquire(CacheKey key, std::size_t bytes);
  // As acquire(), but returns nothing if there is no room after `timeout`.
  std::optional<Slot> try_acquire(CacheKey key, std::size_t bytes,
                                  std::chrono::nanoseconds timeout = {});
  // The slot of `key` if it has one: a hit, or nothing. Does not count as a miss.
  std::optional<Slot> acquire_cached(CacheKey key);
  // Looks a key up. Does not hold the slot, and counts neither as a hit nor as a use.
  std::optional<Found> find(CacheKey key) const;

  SlotCacheStatistics statistics() const;

 private:
  std::shared_ptr<detail::SlotCacheState> state_;
};

}  // namespace ps
