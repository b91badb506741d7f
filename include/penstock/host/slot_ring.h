// A ring of page-locked slots that are reused for any number of batches: a slot returns to the ring
// as soon as the device has finished with it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "penstock/base/view.h"
#include "penstock/host/event.h"
#include "penstock/host/stream.h"

namespace ps {

namespace detail {
class SlotRingState;
}

enum class WhenExhausted : std::uint8_t {
  wait,  // acquire() blocks until a slot is free
  fail,  // acquire() throws Exhausted at once
};

struct SlotRingOptions {
  std::size_t slots = 4;
  std::size_t slot_bytes = 0;
  WhenExhausted when_exhausted = WhenExhausted::wait;
  // How the ring waits for the device: with one thread for all slots, or, with Waiting::block, with
  // one thread per slot.
  Waiting waiting = Waiting::poll;
  bool measure = false;  // fill in recycle_p50_us and recycle_p99_us
};

struct SlotRingStatistics {
  std::uint64_t acquired = 0;
  std::uint64_t exhausted = 0;  // calls that found no free slot
  std::size_t free_slots = 0;
  // Microseconds from completion on the device until the slot can be acquired, with `measure`.
  std::optional<double> recycle_p50_us = {};
  std::optional<double> recycle_p99_us = {};
};

class SlotRing {
 public:
  // An acquired slot. Move-only. The destructor calls release().
  class Slot {
   public:
    Slot(Slot&& other) noexcept;
    Slot& operator=(Slot&& other) noexcept;
    ~Slot();

    MemoryView view() const;
    std::size_t index() const { return index_; }

    // Frees the slot when the work enqueued on `stream` so far has completed, independently of
    // slots released earlier. Does not block. The slot must not be used after this call.
    void release_after(const Stream& stream);
    // Frees the slot now.
    void release() noexcept;

   private:
    friend class SlotRing;
    Slot(std::shared_ptr<detail::SlotRingState> state, std::size_t index);
    std::shared_ptr<detail::SlotRingState> state_;
    std::size_t index_ = 0;
  };

  // Allocates all slots. Throws InvalidArgument or OutOfMemory.
  SlotRing(const Device& device, SlotRingOptions options);
  // Waits for slots that were passed to release_after(). Slots held by the caller stay valid.
  ~SlotRing();
  SlotRing(const SlotRing&) = delete;
  SlotRing& operator=(const SlotRing&) = delete;

  // The slot that has been free longest. If none is free, blocks or throws Exhausted, as
  // `when_exhausted` says. Throws DeviceError if work that used a slot failed.
  Slot acquire();
  // As acquire(), but returns nothing if no slot is free after `timeout`.
  std::optional<Slot> try_acquire(std::chrono::nanoseconds timeout = {});

  std::size_t slots() const;
  SlotRingStatistics statistics() const;

 private:
  std::shared_ptr<detail::SlotRingState> state_;
};

}  // namespace ps
