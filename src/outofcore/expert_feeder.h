// What is behind StreamedExperts: calls enqueue their work and are posted to a thread that answers
// them one after the other.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "host/first_error.h"
#include "outofcore/calls_in_flight.h"
#include "outofcore/expert_answers.h"
#include "outofcore/expert_call.h"
#include "outofcore/expert_disk_calls.h"
#include "outofcore/expert_host.h"
#include "outofcore/expert_steps.h"
#include "penstock/host/buffer.h"
#include "penstock/outofcore/experts.h"

namespace ps::detail {

class ExpertFeeder {
 public:
  ExpertFeeder(StreamedExpertsOptions options, ExpertHooks hooks);
  ~ExpertFeeder();
  ExpertFeeder(const ExpertFeeder&) = delete;
  ExpertFeeder& operator=(const ExpertFeeder&) = delete;

  void forward(std::int64_t layer, const MoeOptions& call, const Stream& stream);
  void prefetch(std::int64_t layer, std::span<const std::int32_t> experts);
  void prefetch(std::int64_t layer, const TensorView& ids, const Stream& stream);
  void clear();
  void check() { error_.rethrow(); }
  void synchronize();
  void close();
  ExpertStatistics statistics() const;
  std::vector<ExpertCallRecord> records() const;
  std::size_t slots() const { return slot_count_; }
  std::size_t device_bytes() const { return memory_.bytes(); }

 private:
  // --- on the threads of callers ---
  void check_open(const char* call) const;
  void check_stream(const Stream& stream) const;
  std::size_t last_misses(std::int64_t layer) const;
  void forward_in_place(std::int64_t layer, MoeOptions options, const Stream& stream);
  void share_with_host(const StreamedExpertsOptions& options, const MemoryView& slots);
  void enqueue(ExpertCall& call, const MoeOptions& options, const Stream& stream);
  // A list of one call that is free. Calls move between lists, which takes no memory.
  // With `host`, it also has a part for the host.
  std::list<ExpertCall*> acquire(bool host = false);
  void give_back(std::list<ExpertCall*> call) noexcept;  // one that was not used
  void make_free(std::list<ExpertCall*>& from);          // the first one; with the lock held
  void wait_for_calls();                                 // those made so far
  void post(std::list<ExpertCall*> call) noexcept;
  void free_part(ExpertCall& call);  // of the host; with the lock held
  // For a call whose work could not be enqueued as a whole.
  void abandon(std::list<ExpertCall*> call, const Stream& stream) noexcept;

  // Yields, or sleeps if there has been nothing to do for long.
  static void pause_since(std::int64_t busy_ns);

  // --- on the answering thread ---
  void run();
  void take_posted();
  void take_hints();
  void answer_current();
  void count(const ExpertCallRecord* record, bool failed);
  static bool is_over(const ExpertCall& call);
  void give_back_done();
  void drop_work();
  bool must_end();  // sleeps while there is nothing to do
  void pause();

  const ExpertShape shape_;
  const ExpertStore* const store_;  // null: on a disk, or compressed
  const Device device_;
  const ExpertHooks hooks_;
  const bool in_place_;
  const std::size_t most_records_;
  const std::size_t pinned_;
  std::size_t slot_count_ = 0;
  FirstError error_;
  std::atomic<bool> cancelled_{false};
  // Of the CPU device, if nothing is copied.
  CallsInFlight in_place_calls_;
  std::optional<ExpertDiskCalls> disk_calls_;  // if the experts are on a disk

  // Everything below is used only if experts are copied.
  DeviceBuffer memory_;  // slots, then the tables of calls, then buffers for compressed experts
  PinnedBuffer copied_;
  std::optional<ExpertCalls> calls_;
  std::optional<ExpertHost> host_;  // computes experts too

  std::mutex forwarding_;
  mutable std::mutex mutex_;
  std::condition_variable posted_or_ending_, given_back_;
  std::list<ExpertCall*> free_, posted_, posted_hints_;
  std::uint64_t calls_made_ = 0;
  std::vector<ExpertHostPart*> free_parts_;  // of the host
  // Experts by layer that prefetch() named.
  std::deque<std::pair<std::int64_t, std::vector<std::int32_t>>> named_;
  bool ending_ = false, closed_ = false;
  bool clearing_ = false;                   // the cache is to be emptied
  std::vector<std::uint32_t> last_misses_;  // by layer
  ExpertStatistics statistics_;
  std::deque<ExpertCallRecord> records_;

  // Of the answering thread.
  std::optional<ExpertAnswers> answers_;
  std::list<ExpertCall*> current_;   // the call that is answered next
  std::list<ExpertCall*> hints_;     // whose ids are not known yet
  std::list<ExpertCall*> answered_;  // and not done yet
  std::int64_t busy_ns_ = 0;         // when the thread last had something to do
  std::int64_t looked_ns_ = 0;       // for faults
  std::thread thread_;
};

}  // namespace ps::detail
