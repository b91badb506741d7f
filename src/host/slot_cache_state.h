// What a SlotCache and its handles share: the slots, who holds them, and what is in flight.
#pragma once

#include <condition_variable>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>

#include "host/event_pool.h"
#include "host/free_ranges.h"
#include "penstock/host/slot_cache.h"

namespace ps::detail {

enum class Fill : std::uint8_t {
  pending,    // the handle that must fill the slot has not said anything yet
  in_flight,  // the contents are there once `filled` is reached
  done,
  failed,  // with `error`; the slot has no key any more
};

// Guarded by the mutex of the cache, except for what never changes.
struct CachedSlot {
  const CacheKey key;
  const std::size_t bytes;    // as asked for
  const ByteRange range;      // in whole granules
  std::size_t handles = 1;    // that hold it
  std::size_t in_flight = 0;  // releases and fills whose work has not completed
  Fill fill = Fill::pending;
  std::shared_ptr<Event> filled{};
  std::exception_ptr error{};

  bool unused() const { return handles == 0 && in_flight == 0; }
};

class SlotCacheState {
 public:
  SlotCacheState(const Device& device, MemoryView memory, SlotCacheOptions options);

  struct Acquired {
    std::shared_ptr<CachedSlot> slot;
    bool hit = false;
  };
  // Waits without a limit if there is no timeout.
  std::optional<Acquired> acquire(CacheKey key, std::size_t bytes,
                                  std::optional<std::chrono::nanoseconds> timeout);
  std::optional<Acquired> acquire_cached(CacheKey key);
  std::optional<SlotCache::Found> find(CacheKey key);
  SlotCacheStatistics statistics();

  // The slot is in use until the work enqueued on `stream` so far has completed, or until `event`
  // is reached. With `fills`, it holds its contents then. If a call throws, that work has
  // completed.
  void use(const std::shared_ptr<CachedSlot>& slot, const Stream& stream, const char* operation,
           bool fills = false);
  void fill_by(const std::shared_ptr<CachedSlot>& slot, const Event& event);
  void fill_now(CachedSlot& slot);

  void join(CachedSlot& slot, const Stream& stream);
  void wait(CachedSlot& slot);
  bool ready(CachedSlot& slot);

  // A handle is gone; with an error, it was to fill the slot and did not.
  void release(CachedSlot& slot, std::exception_ptr error = {}) noexcept;
  // The error of a fill whose handle was released.
  static std::exception_ptr abandoned(CacheKey key) noexcept;

  // Blocks until nothing is in flight any more.
  void drain() noexcept;

  std::string exhausted_message(std::size_t bytes);
  MemoryView view(const CachedSlot& slot) const {
    return memory_.sub(slot.range.offset, slot.bytes);
  }
  std::size_t index(const CachedSlot& slot) const { return slot.range.offset / granularity_; }
  WhenExhausted when_exhausted() const { return when_exhausted_; }

 private:
  using Lock = std::unique_lock<std::mutex>;
  struct Use {
    std::shared_ptr<CachedSlot> slot;
    std::shared_ptr<Event> done;
    bool fills = false;
  };
  // Work of one stream completes in order, so only its oldest use is looked at.
  struct Queue {
    std::optional<Stream> stream;  // none for an event of the caller
    std::deque<Use> uses;
  };
  struct Request {
    CacheKey key = 0;
    std::size_t bytes = 0, taken = 0;  // as asked for, and in whole granules
  };
  struct Waiter {
    Request request;
    std::optional<Acquired> result{};
    std::exception_ptr error{};
    bool hopeless = false;  // waiting longer cannot help

    bool served() const { return result || error || hopeless; }
  };

  void check_device(const char* argument, const Device& device) const;
  Request request(CacheKey key, std::size_t bytes) const;
  std::optional<Acquired> wait_for_room(Lock& lock, const Request& request,
                                        std::optional<std::chrono::nanoseconds> timeout);
  // A hit, or a miss if there is room.
  std::optional<Acquired> satisfy(const Request& request);
  Acquired hit(const std::shared_ptr<CachedSlot>& slot);
  std::optional<std::size_t> make_room(std::size_t bytes);
  void evict(const CachedSlot& slot) noexcept;
  bool waiting_may_help(std::size_t bytes) const;
  void serve() noexcept;
  void let_go(CachedSlot& slot, std::exception_ptr error) noexcept;  // release(), with the lock

  void add_use(std::optional<Stream> stream, Use use);
  void prune() noexcept;
  // Notices completed work. Errors of that work go to `error_`. May release the lock for a while.
  void reap(Lock& lock);
  void rethrow_error();
  void wait_for_announcement(Lock& lock, const CachedSlot& slot);
  void complete(const Use& use, std::exception_ptr error) noexcept;
  void fail_fill(CachedSlot& slot, std::exception_ptr error) noexcept;
  void free_if_unused(CachedSlot& slot) noexcept;

  Device device_;
  const MemoryView memory_;
  const std::size_t granularity_, capacity_;
  const WhenExhausted when_exhausted_;
  const std::unique_ptr<CachePolicy> policy_;
  EventPool events_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_map<CacheKey, std::shared_ptr<CachedSlot>> keys_;
  std::map<std::size_t, std::shared_ptr<CachedSlot>> slots_;  // by offset; also those without a key
  FreeRanges free_;
  static constexpr std::size_t least_to_prune = 64;
  std::list<Queue> queues_;
  std::size_t uses_ = 0,
              prune_at_ = least_to_prune;  // in all queues; when to look for completed ones
  std::list<Waiter> waiters_;              // in the order of their calls
  std::exception_ptr error_;               // of work that used a slot; for the next acquire()
  SlotCacheStatistics counts_;
};

}  // namespace ps::detail
