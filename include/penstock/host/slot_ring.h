// A ring of page-locked slots: a few slots serve any number of batches, because each goes back into
// the ring as soon as the device is done with it.
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
  wait,  // acquire() blocks until a slot comes back
  fail,  // acquire() throws Exhausted at once
};

struct SlotRingOptions {
  std::size_t slots = 4;
  std::size_t slot_bytes = 0;
  WhenExhausted when_exhausted = WhenExhausted::wait;
  Waiting waiting = Waiting::poll;  // of the thread that brings slots back
  bool measure = false;  // keep the time from device completion to reusable, of every release
};

struct SlotRingStatistics {
  std::uint64_t acquired = 0;
  std::uint64_t exhausted = 0;  // acquisitions that found no free slot
  std::size_t free_slots = 0;
  // From device completion to reusable, in microseconds; present when measured.
  std::optional<double> recycle_p50_us = {};
  std::optional<double> recycle_p99_us = {};
};

class SlotRing {
 public:
  // One slot in use. Move-only; a slot dropped without release_after() comes back at once.
  class Slot {
   public:
    Slot(Slot&& other) noexcept;
    Slot& operator=(Slot&& other) noexcept;
    ~Slot();

    MemoryView view() const;
    std::size_t index() const { return index_; }

    // The slot comes back when everything enqueued on `stream` so far has completed. Does not
    // block. The slot must not be used after this.
    void release_after(const Stream& stream);
    // The slot comes back now.
    void release() noexcept;

   private:
    friend class SlotRing;
    Slot(std::shared_ptr<detail::SlotRingState> state, std::size_t index);
    std::shared_ptr<detail::SlotRingState> state_;
    std::size_t index_ = 0;
  };

  // Allocates every slot now. Throws InvalidArgument or OutOfMemory; then nothing stays allocated.
  SlotRing(const Device& device, SlotRingOptions options);
  // Waits for the slots that are still on their way back; slots held by the caller keep the memory.
  ~SlotRing();
  SlotRing(const SlotRing&) = delete;
  SlotRing& operator=(const SlotRing&) = delete;

  // A free slot, in the order they came back. Blocks or throws Exhausted, as chosen; throws
  // DeviceError when the work that held a slot failed.
  Slot acquire();
  // As acquire(), but gives up after `timeout` (zero: at once) and returns nothing.
  std::optional<Slot> try_acquire(std::chrono::nanoseconds timeout = {});

  std::size_t slots() const;
  SlotRingStatistics statistics() const;

 private:
  std::shared_ptr<detail::SlotRingState> state_;
};

}  // namespace ps
