// Calls of StreamedExperts that are in flight. The memory and events of a call are made once and
// used again by later calls.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "ops/moe/routing.h"
#include "outofcore/expert_groups.h"
#include "outofcore/expert_host.h"
#include "penstock/base/view.h"
#include "penstock/host/buffer.h"
#include "penstock/host/event.h"

namespace ps::detail {

struct ExpertCall {
  // Page-locked. The stream writes the rows of each expert and sets `routed`; the host writes where
  // the experts of a group are, and the group's flag is set when they are there.
  std::uint32_t* rows = nullptr;
  std::uint32_t* routed = nullptr;
  std::uint32_t* flags = nullptr;  // one per group
  std::int32_t* maps = nullptr;    // (groups, E): the slot of each expert, or -1
  TensorView slots{};              // (E) on the device: the map of the group that is computed
  std::vector<Event> read;         // one per group: its slots have been read
  Event done;
  // The number of the last use for which everything that the stream waits for has been enqueued.
  std::atomic<std::uint32_t> answered{0};

  // Of this use of the memory.
  // The value of `routed` and of the flags. The answering thread counts it up when the use is over.
  std::uint32_t number = 1;
  std::uint64_t serial = 0;  // which call of the object it is, from 1; 0: none
  bool hint = false;         // a prefetch() without groups
  bool abandoned = false;    // not all of its work was enqueued, and none is left
  bool failed = false;       // when it was answered
  bool whole = false;        // nearly all experts of the layer will be needed
  std::int64_t layer = 0, tokens = 0;
  std::size_t groups = 0;
  std::int64_t enqueued_ns = 0;
  ExpertHostPart* host = nullptr;  // null: the host computes none of its experts

  explicit ExpertCall(const Device& device) : done(device) {
    for (std::size_t group = 0; group < most_expert_groups; ++group) read.emplace_back(device);
  }
  std::int32_t* map(std::size_t group) const {
    return maps + static_cast<std::int64_t>(group) * slots.extent(0);
  }
  MoeRouting routing() const {
    return {.rows = rows,
            .flag = routed,
            .value = number,
            .x = host == nullptr ? nullptr : host->x,
            .ids = host == nullptr ? nullptr : host->ids};
  }
};

// The calls of one object, with their memory.
class ExpertCalls {
 public:
  // Bytes of device memory.
  static std::size_t device_bytes(std::size_t calls, std::int64_t experts);

  ExpertCalls(const Device& device, MemoryView device_memory, std::size_t calls,
              std::int64_t experts);

  std::deque<ExpertCall>& all() { return calls_; }

 private:
  PinnedBuffer pinned_;
  std::deque<ExpertCall> calls_;
};

}  // namespace ps::detail
