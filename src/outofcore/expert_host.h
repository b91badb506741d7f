// Experts of StreamedExperts that the CPU computes where they lie, while others are copied to the
// GPU. The stream publishes the tokens of a call; a thread of this object, and its helpers, compute
// the rows of the experts that the answering thread gives them, in page-locked memory; and the
// stream waits for a flag before it takes these rows. Nothing here calls the device, so a stream
// that waits for the flag waits for the CPU alone.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "host/first_error.h"
#include "outofcore/expert_steps.h"
#include "outofcore/polling_threads.h"
#include "penstock/host/buffer.h"
#include "penstock/host/stream.h"
#include "penstock/outofcore/experts.h"

namespace ps::detail {

// The host's part of a call: page-locked memory that belongs to one call at a time.
struct ExpertHostPart {
  void* x = nullptr;              // tokens, written by the stream
  std::int32_t* ids = nullptr;    // likewise
  std::uint32_t* flag = nullptr;  // set to `number` when the rows are there
  std::byte* workspace = nullptr;

  // Of this use of the memory.
  std::uint32_t number = 1;
  MoeWork work{};              // of the CPU, with the weights of all experts of the layer
  std::vector<char> chosen{};  // by expert: whether the host computes it
  std::int64_t experts = 0;    // how many it computes
  std::int64_t begin_ns = 0;   // when it was told to
  bool failed = false;
  // The flag is set, and nothing reads or writes the part any more.
  std::atomic<bool> finished{true};

  MoeHostRows rows() const {
    return {.place = work.space.pair_rows(work.memory), .y = work.space.y_rows(work.memory)};
  }
};

class ExpertHost {
 public:
  // Calls of more tokens, or more (token, choice) pairs, do not use the host.
  static constexpr std::int64_t most_tokens = 64, most_pairs = 512;
  // Calls that can have a part at the same time. A call of few tokens waits for its routing before
  // the next one begins, so few are in flight.
  static constexpr std::size_t parts = 4;

  // Throws InvalidArgument naming an option of the CPU's share.
  static void check(const StreamedExpertsOptions& options, bool copies);

  // `error` takes what fails. `copy_ns` is how long the link takes for an expert.
  ExpertHost(const StreamedExpertsOptions& options, const ExpertHooks& hooks, std::int64_t copy_ns,
             FirstError& error, const std::atomic<bool>& cancelled);
  ~ExpertHost();
  ExpertHost(const ExpertHost&) = delete;
  ExpertHost& operator=(const ExpertHost&) = delete;

  std::deque<ExpertHostPart>& all() { return parts_; }

  // --- on the threads of callers ---
  static bool takes(std::int64_t tokens, std::int64_t pairs) {
    return tokens <= most_tokens && pairs <= most_pairs;
  }
  // For a call with these options, which were checked, before it is enqueued.
  void prepare(ExpertHostPart& part, std::int64_t layer, const MoeOptions& options) const;
  // Says that a call may soon give experts to the host.
  void wake() noexcept;
  // Lets the stream go on without rows of the host.
  static void release(ExpertHostPart& part) noexcept;

  // --- on the answering thread ---
  bool fixed() const { return share_ > 0; }
  // Of the experts with rows: always the same, whatever is in the cache.
  std::vector<std::int32_t> fixed_choice(std::span<const std::int32_t> needed,
                                         const std::uint32_t* rows) const;
  // Of experts that are not on the device, so many that the CPU and the link probably end at the
  // same time. `copies` are in flight already.
  std::vector<std::int32_t> balanced_choice(std::int64_t layer,
                                            std::span<const std::int32_t> missing,
                                            const std::uint32_t* rows, std::size_t copies);
  void start(ExpertHostPart& part, std::span<const std::int32_t> experts) noexcept;
  // An expert was copied to the device, or the cache was cleared.
  void copied(std::int64_t layer, std::int64_t expert) noexcept { uses_of(layer, expert) = 0; }
  void forget() noexcept;

 private:
  std::uint8_t& uses_of(std::int64_t layer, std::int64_t expert) {
    return uses_[static_cast<std::size_t>(layer * shape_.experts + expert)];
  }
  void run();
  ExpertHostPart* next();
  void compute(ExpertHostPart& part) noexcept;
  void measured(const ExpertHostPart& part) noexcept;

  const ExpertStore& store_;
  const ExpertShape shape_;
  const double share_;  // 0: balanced
  const double copy_ns_;
  const std::shared_ptr<ExpertSteps> steps_;
  FirstError& error_;
  const std::atomic<bool>& cancelled_;

  std::size_t workspace_bytes_ = 0;
  PinnedBuffer memory_;
  std::deque<ExpertHostPart> parts_;
  // How long the CPU takes for an expert: an average in which recent calls count more.
  std::atomic<double> host_ns_;
  bool has_measured_ = false;
  std::vector<std::uint8_t> uses_;  // by layer and expert: uses on the host since the last copy

  std::mutex mutex_;
  std::condition_variable started_or_ending_;
  std::vector<ExpertHostPart*> started_;
  std::atomic<std::uint32_t> waiting_{0};  // parts in started_
  std::atomic<std::uint32_t> calls_without_experts_{0};
  bool woken_ = false, ending_ = false;
  PollingThreads helpers_;
  std::thread thread_;
};

}  // namespace ps::detail
