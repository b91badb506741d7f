// What a GPU itself says it did, through CUPTI: every kernel and copy with its own begin and end.
//
//   ps::Timeline timeline;
//   {
//     ps::DeviceTrace trace(timeline);
//     pipeline.run({.items = n, .recorder = &trace});
//   }
//
// Work enqueued by a pipeline's stages is told by stage and item; any other by the kernel's name.
// Watching costs time: never leave it on in a run that is timed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "penstock/base/recorder.h"
#include "penstock/trace/timeline.h"

namespace ps {

class DeviceTrace final : public Recorder {
 public:
  // Why there can be none here: built without CUDA, no CUPTI, another tool that uses it. Empty when
  // there can. CUPTI is looked for at the first call.
  static std::string why_not();

  // Watches from here on; `timeline` must outlive it. One at a time in a process. Throws
  // Unsupported.
  explicit DeviceTrace(Timeline& timeline);

  // Stops watching. What was still running is not in the timeline: synchronise first.
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
