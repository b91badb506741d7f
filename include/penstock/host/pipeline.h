// Runs numbered items through a graph of stages that overlap: while one stage works on item i, the
// stage before it works on item i + 1.
//
//   ps::Pipeline pipeline({.device = ps::Device::best(), .depth = 4});
//   auto in = pipeline.ring("in", {.memory = ps::Memory::pinned, .bytes = chunk});
//   auto work = pipeline.ring("work", {.memory = ps::Memory::device, .bytes = chunk});
//   auto read = pipeline.host_stage("read", {.uses = {in}}, [&](ps::Item& item) { ... });
//   auto upload = pipeline.stage(
//       "upload", {.after = {read}, .uses = {in, work}}, [&](ps::Item& item) {
//         ps::copy(item.slot(work), item.slot(in), item.stream());
//       });
//   pipeline.run({.items = n});
//
// Order: every stage takes the items in order. A stage starts item i when all stages in its `after`
// have finished item i and the slots it acquires are free.
//
// Rings: a ring has `depth` slots, and item i uses slot i % depth. The first stage that uses a ring
// acquires the slot; all other users must come after that stage. The slot is free again when all
// users have finished the item. Slots are allocated once, by the first run.
//
// Kinds of stages: a device stage enqueues work on its stream and returns; device stages wait for
// each other on the device. A host stage has its own thread and may block. An async stage starts an
// item and calls a Completion when the item is done, so that several items are in flight at once.
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

// The argument of a stage function. Valid during the call only.
class Item {
 public:
  std::uint64_t index() const { return index_; }

  // This item's slot of `ring`. Throws InvalidArgument if `ring` is not in the stage's `uses`.
  MemoryView slot(RingId ring) const;

  // The stage's stream. Throws InvalidArgument in a host stage.
  const Stream& stream() const;

  // Temporary memory from the pipeline's pool, for device stages. It is allocated in the stage's
  // stream and freed in stream order: after this stage, or after stage `until` has finished this
  // item. `until` must come after this stage. Throws OutOfMemory.
  MemoryView scratch(std::size_t bytes);
  MemoryView scratch(std::size_t bytes, StageId until);

  // Whether the run was cancelled or has failed. Long host stages should poll this and return
  // early.
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

// Ends one item of an async stage. Call it once, from any thread, when the item's slots are no
// longer in use; run() waits for it. Copies refer to the same item. If the last copy is destroyed
// without a call, the item has failed.
class Completion {
 public:
  // `failure`: the reason if the item failed. The first failure stops the run and becomes its
  // error.
  void operator()(std::exception_ptr failure = nullptr) const;

 private:
  friend class detail::PipelineRun;
  explicit Completion(std::shared_ptr<detail::Ending> ending) : ending_(std::move(ending)) {}
  std::shared_ptr<detail::Ending> ending_;
};

// Starts an item. The Item is valid during the call, its slots until the Completion is called.
using AsyncFunction = std::function<void(Item&, const Completion&)>;

struct RingOptions {
  Memory memory = Memory::pinned;
  std::size_t bytes = 0;  // of one slot
  std::size_t depth = 0;  // number of slots; 0: the pipeline's depth
};

struct StageOptions {
  std::vector<StageId> after{};     // stages that must finish an item first
  std::vector<RingId> uses{};       // rings whose slots the stage touches
  Engine engine = Engine::compute;  // where the work appears on timelines
  Priority priority = Priority::normal;
  std::optional<Stream> stream{};  // the caller's stream; by default the stage has its own
};

struct HostStageOptions {
  std::vector<StageId> after{};  // stages that must finish an item first
  std::vector<RingId> uses{};    // rings whose slots the stage touches
  Engine engine = Engine::host;  // where the work appears on timelines
};

struct PipelineOptions {
  Device device = Device::best();
  std::size_t depth = 4;            // slots per ring, unless the ring sets its own
  std::optional<Pool> pool{};       // for scratch memory; by default the pipeline makes its own
  Waiting waiting = Waiting::poll;  // how the library's threads wait for the device
};

struct Progress {
  std::uint64_t done = 0;   // items finished by every stage
  std::uint64_t items = 0;  // of the run
};

struct RunOptions {
  std::uint64_t items = 0;
  // Cancels the run. Work already enqueued on the device completes: at most about 100 ms of work
  // per device stage, or two items if they take longer.
  std::stop_token stop{};
  // Called by the thread that called run(), about ten times per second and at the end. If it
  // throws, the run ends and run() rethrows the exception.
  std::function<void(const Progress&)> progress{};
  // Receives the busy intervals of all stages.
  Recorder* recorder = nullptr;
  // The run waits for the work that is enqueued on this stream.
  std::optional<Stream> after{};
};

struct StageReport {
  std::string name;
  std::uint64_t done = 0;  // items
};

struct RingReport {
  std::string name;
  std::size_t slots = 0;
  std::uint64_t exhausted = 0;  // times that an item had to wait for its slot
};

struct RunReport {
  std::uint64_t items = 0;  // finished by every stage
  bool cancelled = false;
  double seconds = 0;             // from the first submission to the last completion
  double submit_cpu_seconds = 0;  // CPU time of the thread that enqueued the device stages
  std::uint64_t allocations = 0;  // of memory, streams and events during this run
  std::vector<StageReport> stages;
  std::vector<RingReport> rings;
};

// The first error of a run, with its stage, item and original exception.
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

// Build the graph, then call run() any number of times, one run at a time. Move-only.
class Pipeline {
 public:
  explicit Pipeline(PipelineOptions options = {});
  ~Pipeline();
  Pipeline(Pipeline&&) noexcept;
  Pipeline& operator=(Pipeline&&) noexcept;

  // Add a ring or a stage. They throw InvalidArgument naming the field.
  RingId ring(std::string_view name, RingOptions options);
  StageId stage(std::string_view name, StageOptions options, StageFunction function);
  StageId host_stage(std::string_view name, HostStageOptions options, StageFunction function);
  StageId async_stage(std::string_view name, HostStageOptions options, AsyncFunction function);

  // Runs items 0 to items - 1 and blocks until all are done, the run is cancelled, or a stage
  // fails. Throws PipelineError for the first failure of a stage, OutOfMemory or DeviceError if
  // slots cannot be allocated. However it ends, all slots are free afterwards, nothing is leaked,
  // and the pipeline can run again unless the device is lost.
  RunReport run(RunOptions options);

 private:
  std::unique_ptr<detail::PipelineImpl> impl_;
};

}  // namespace ps
