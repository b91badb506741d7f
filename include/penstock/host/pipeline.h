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
// penstock/host/stage.h describes stages and rings. Slots are allocated once, by the first run.
// For items that come one by one, see penstock/host/session.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/base/recorder.h"
#include "penstock/host/pool.h"
#include "penstock/host/stage.h"
#include "penstock/host/stream.h"

namespace ps {

namespace detail {
class StageGraph;
}

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
  std::unique_ptr<detail::StageGraph> graph_;
};

}  // namespace ps
