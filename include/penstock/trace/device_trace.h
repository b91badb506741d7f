// Records through CUPTI when each kernel and copy began and ended on the GPU.
//
//   ps::Timeline timeline;
//   {
//     ps::DeviceTrace trace(timeline);
//     pipeline.run({.items = n, .recorder = &trace});
//   }
//
// Work that a pipeline's stages enqueue is recorded under its stage and item, any other work under
// the kernel's name. Tracing costs time: do not time a run while a trace is active.
//
// CUPTI drops records when its buffers are full or memory runs out. Check timeline.complete(), or
// timeline.lost_records(), before you trust the timeline.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "penstock/base/recorder.h"
#include "penstock/trace/timeline.h"

namespace ps {

class DeviceTrace final : public Recorder {
 public:
  // Why tracing is not possible here: a build without CUDA, no CUPTI, another tool that uses CUPTI.
  // Empty if it is possible. The first call loads CUPTI.
  static std::string why_not();

  // Starts tracing. `timeline` must outlive the trace. Throws Unsupported if tracing is not
  // possible, or if the process already has a trace.
  explicit DeviceTrace(Timeline& timeline);

  // Stops tracing, and writes the device's work and the number of lost records to the timeline.
  // Work that is still running is not recorded: synchronize first.
  ~DeviceTrace() override;

  void record(const Interval& interval) noexcept override;
  void begin_run(std::int64_t steady_ns) noexcept override;
  bool watches_device() const noexcept override { return true; }
  void begin_enqueue(std::string_view stage, std::uint64_t item) noexcept override;
  void end_enqueue() noexcept override;

 private:
  Timeline& timeline_;
};

}  // namespace ps
