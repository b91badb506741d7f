// A graph of named stages through which numbered items flow, each stage working on another item.
//
//   ps::Pipeline pipeline({.device = ps::Device::best(), .depth = 4});
//   auto in   = pipeline.ring("in", {.memory = ps::Memory::pinned, .bytes = chunk});
//   auto work = pipeline.ring("work", {.memory = ps::Memory::device, .bytes = chunk});
//   auto read = pipeline.host_stage("read", {.uses = {in}}, [&](ps::Item& item) { ... });
//   auto up   = pipeline.stage("upload", {.after = {read}, .uses = {in, work}}, [&](ps::Item& item)
//   {
//     ps::copy(item.slot(work), item.slot(in), item.stream());
//   });
//   pipeline.run({.items = n});
//
// Order. Every stage sees items 0, 1, 2, ... in order. Stage S starts item i when every stage in
// its `after` has done item i, and when the slots it acquires are free again.
// Rings. A ring has `depth` slots; item i uses slot i % depth. The first stage that uses a ring
// acquires the slot, every other user must come after that stage, and the slot is free again when
// all users are done with it. Slots are allocated once, at the first run.
// Device stages enqueue work on their stream and return; waiting between them happens on the
// device. Host stages run on a thread of their own, one per stage, and may block. Async stages only
// begin an item there, and are told later that it is done, so that several are on their way at
// once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "penstock/base/recorder.h"
#include "penstock/base/view.h"
#include "penstock/host/pool.h"
#include "penstock/host/stream.h"

namespace ps {

namespace detail {
class Ending;
class PipelineImpl;
class PipelineRun;
}  // namespace detail

struct StageId {
  std::size_t value = static_cast<std::size_t>(-1);
};
struct RingId {
  std::size_t value = static_cast<std::size_t>(-1);
};

// What a stage function is given. Valid during the call only.
class Item {
 public:
  std::uint64_t index() const { return index_; }

  // This item's slot of `ring`. Throws InvalidArgument when the stage did not declare it in `uses`.
  MemoryView slot(RingId ring) const;

  // The stage's stream. Throws InvalidArgument in a host stage.
  const Stream& stream() const;

  // Scratch from the pipeline's pool, allocated in the stage's stream. The first form is freed in
  // stream order right after this stage; the second after stage `until` did this item, which must
  // come after this stage. Device stages only. Throws OutOfMemory.
  MemoryView scratch(std::size_t bytes);
  MemoryView scratch(std::size_t bytes, StageId until);

  // Whether the run was cancelled or failed elsewhere; a long host stage should look now and then.
  bool stopping() const;

 private:
  friend class detail::PipelineRun;
  Item(detail::PipelineRun& run, std::size_t stage, std::uint64_t index)
      : run_(&run), stage_(stage), index_(index) {}
  detail::PipelineRun* run_;
  std::size_t stage_;
  std::uint64_t index_;
};

using StageFunction = std::function<void(Item&)>;

// Ends one item of an async stage. Call it once, from any thread, when the item's work is over and
// its slots are not touched any more; run() waits for that. Copies are one and the same. When the
// last copy goes without having been called, the item counts as failed.
class Completion {
 public:
  // With why the item failed, if it did: the first failure stops the run and becomes its error.
  void operator()(std::exception_ptr failure = nullptr) const;

 private:
  friend class detail::PipelineRun;
  explicit Completion(std::shared_ptr<detail::Ending> ending) : ending_(std::move(ending)) {}
  std::shared_ptr<detail::Ending> ending_;
};

// Begins an item; the Item is valid during the call, its slots until the completion.
using AsyncFunction = std::function<void(Item&, const Completion&)>;

struct RingOptions {
  Memory memory = Memory::pinned;
  std::size_t bytes = 0;  // of one slot
  std::size_t depth = 0;  // slots; 0: the pipeline's depth
};

struct StageOptions {
  std::vector<StageId> after{};
  std::vector<RingId> uses{};
  Engine engine = Engine::compute;
  Priority priority = Priority::normal;
  std::optional<Stream> stream{};  // the caller's; else the stage gets its own
};

struct HostStageOptions {
  std::vector<StageId> after{};
  std::vector<RingId> uses{};
  Engine engine = Engine::host;
};

struct PipelineOptions {
  Device device = Device::best();
  std::size_t depth = 4;       // slots of a ring that does not say otherwise
  std::optional<Pool> pool{};  // for scratch; else the pipeline makes its own when first needed
  Waiting waiting = Waiting::poll;  // of the library's threads, for completions
};

struct Progress {
  std::uint64_t done = 0;
  std::uint64_t items = 0;
};

struct RunOptions {
  std::uint64_t items = 0;
  // Cancels the run; items in flight on the device complete.
  std::stop_token stop{};
  // Called at most ten times a second, and at the end, by the thread that called run().
  std::function<void(const Progress&)> progress{};
  // Receives every stage's busy intervals.
  Recorder* recorder = nullptr;
  // The run starts behind the work enqueued on this stream.
  std::optional<Stream> after{};
};

struct StageReport {
  std::string name;
  std::uint64_t done = 0;
};

struct RingReport {
  std::string name;
  std::size_t slots = 0;
  std::uint64_t exhausted = 0;  // times a slot was still in use when its next item came
};

struct RunReport {
  std::uint64_t items = 0;  // done by every stage
  bool cancelled = false;
  double seconds = 0;             // from the first submission to the last completion
  double submit_cpu_seconds = 0;  // CPU time of the thread that enqueued the device stages
  std::uint64_t allocations = 0;  // of memory, streams or events made during this run
  std::vector<StageReport> stages;
  std::vector<RingReport> rings;
};

// The first error of a run: which stage, which item, and the exception itself.
class PipelineError : public std::runtime_error {
 public:
  PipelineError(std::string_view stage, std::uint64_t item, std::exception_ptr cause);
  const std::string& stage() const noexcept { return stage_; }
  std::uint64_t item() const noexcept { return item_; }
  const std::exception_ptr& cause() const noexcept { return cause_; }

 private:
  std::string stage_;
  std::uint64_t item_;
  std::exception_ptr cause_;
};

// Move-only. One run at a time; build the graph first, then run as often as wanted.
class Pipeline {
 public:
  explicit Pipeline(PipelineOptions options = {});
  ~Pipeline();
  Pipeline(Pipeline&&) noexcept;
  Pipeline& operator=(Pipeline&&) noexcept;

  // Each throws InvalidArgument naming the field that is wrong.
  RingId ring(std::string_view name, RingOptions options);
  StageId stage(std::string_view name, StageOptions options, StageFunction function);
  StageId host_stage(std::string_view name, HostStageOptions options, StageFunction function);
  StageId async_stage(std::string_view name, HostStageOptions options, AsyncFunction function);

  // Flows items 0 .. items-1 through the graph and blocks until all are done, the run is cancelled,
  // or a stage fails. Throws PipelineError for the first failure of a stage, OutOfMemory or
  // DeviceError when the slots cannot be had. However it ends: every slot is back, nothing is
  // leaked, and the pipeline can run again (unless the device is lost).
  RunReport run(RunOptions options);

 private:
  std::unique_ptr<detail::PipelineImpl> impl_;
};

}  // namespace ps
