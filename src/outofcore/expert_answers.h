// Answers calls of StreamedExperts: copies the experts that a call needs into slots and tells the
// call's stream when they are there. Used by one thread. "Copied" includes decompressed.
//
// A call waits for one flag per group. A group whose experts are all in their slots gets its flag
// from the host, every other one from the copy stream, behind the copies. The host writes a group's
// slots to page-locked memory before that. Whatever fails, all flags of a call are set in the end,
// with no experts in the groups that failed, so that no stream waits forever.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "outofcore/expert_call.h"
#include "outofcore/expert_order.h"
#include "outofcore/expert_reads.h"
#include "outofcore/expert_slots.h"
#include "outofcore/expert_staging.h"
#include "penstock/host/buffer.h"
#include "penstock/host/stream.h"
#include "penstock/outofcore/experts.h"

namespace ps::detail {

// Sets the flags of the groups of a call from `first` on, without experts.
void release_groups(ExpertCall& call, std::size_t first);
// Sets all flags of a call that was not answered, without experts.
void release(ExpertCall& call);

class ExpertAnswers {
 public:
  // `slots` is device memory for slots of one block each. `copied` is a flag in page-locked memory.
  ExpertAnswers(const StreamedExpertsOptions& options, std::unique_ptr<CachePolicy> policy,
                MemoryView slots, std::uint32_t* copied, const std::atomic<bool>& cancelled,
                std::int64_t hint_wait_ns);
  // For a compressed store, before the first call: with device memory of its own.
  void stage(MemoryView memory, std::shared_ptr<ExpertSteps> steps);
  // Before the first call: `host` computes experts too, and outlives this object.
  void share_with(ExpertHost& host) { host_ = &host; }

  // Returns what failed, or null. Waits for copies if the call needs more than half of the slots.
  std::exception_ptr answer(ExpertCall& call, ExpertCallRecord& record);

  // Experts to prefetch, before or behind others.
  void wish(std::int64_t layer, std::span<const std::int32_t> experts);
  // The experts that a hint named. A hint for the next layer comes before the call of this one,
  // whose experts are copied first: it waits until that call has been answered, or for hint_wait_ns
  // if none comes.
  void wish(const ExpertCall& hint);
  // Enqueues the copy of one expert, if there is a wish and the link has little to do; drops the
  // wish if the expert cannot be read. Throws DeviceError.
  bool prefetch_one();
  void forget_wishes() noexcept;
  // Releases the slots of the host cache whose copies are complete. Returns whether there is
  // anything left to do: wishes, hints, or copies that slots of the host cache wait for.
  bool has_work();
  // The device is lost: nothing will ever arrive there.
  void give_up() noexcept;
  // Drops all experts.
  void clear() noexcept;

  // Throws DeviceError if the device has failed.
  void look_for_faults() const;
  // Waits for copies; reports nothing.
  void drain() noexcept;

  // Without the counts of calls.
  ExpertStatistics statistics() const;

 private:
  using Key = ExpertSlots::Key;
  struct Plan;
  struct Wish {
    Key key = 0;
    bool scan = false;    // one of all experts of its layer
    bool pinned = false;  // not forgotten when calls come
  };
  struct Hint {
    std::int64_t layer = 0;
    std::vector<std::int32_t> experts{};
    std::int64_t until_ns = 0;
  };

  void give_hits(Plan& plan);
  void give_group(Plan& plan);
  void give_to_host(Plan& plan, std::vector<std::int32_t>& from,
                    const std::vector<std::int32_t>& experts);
  void forget_unneeded(Plan& plan) const;
  MemoryView on_host(Key key);
  void expect(const ExpertCall& call, const std::vector<std::int32_t>& experts);
  bool is_on_host();
  std::size_t bring(Key key, bool scan, const ExpertSlots::Evictable& evictable);
  void wish_ahead(const ExpertCall& call, const std::vector<std::int32_t>& needed);
  void wait_for_copies(std::uint32_t most) const;
  std::uint32_t in_flight() const;
  bool is_ready(ExpertSlots::Slot& slot) const;
  void hold(std::size_t slot, Plan& plan);
  void read_by(std::size_t slot, const Plan& plan);
  void keep(std::int64_t layer);
  void drop_wishes() noexcept;
  MemoryView slot_memory(std::size_t slot) const;

  const ExpertStore* const store_;  // null: one of the next two
  const CompressedExpertStore* const compressed_;
  std::optional<ExpertReads> reads_;
  const ExpertShape shape_;
  const std::size_t block_bytes_;
  const ExpertPrefetch prefetch_;
  const MemoryView memory_;
  const std::size_t working_slots_;  // that are not pinned
  std::uint32_t* const copied_;      // the number of the last copy that is complete
  const std::atomic<bool>& cancelled_;
  Stream copies_;
  Stream fills_;  // fills the slots: copies_, or a stream that decompresses
  std::optional<ExpertStaging> staging_;
  ExpertHost* host_ = nullptr;
  ExpertSlots slots_;
  std::uint32_t enqueued_ = 0;  // the number of the last copy
  std::deque<Wish> wishes_;
  const std::int64_t hint_wait_ns_;
  std::deque<Hint> hints_;                 // that wait for a call
  std::uint64_t answered_ = 0;             // the serial number of the last call that was answered
  std::vector<std::int64_t> kept_layers_;  // that wishes must not evict
  ExpertOrder order_;
  std::vector<std::vector<std::int32_t>> last_needed_;  // by layer
  std::uint64_t copied_bytes_ = 0, prefetched_ = 0;
};

}  // namespace ps::detail
