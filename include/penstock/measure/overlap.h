// Copy and compute, one after the other and overlapped, on this machine: the times, how much was
// hidden, and how far that is from the limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/base/units.h"
#include "penstock/host/pipeline.h"
#include "penstock/measure/engines.h"
#include "penstock/trace/overlap.h"
#include "penstock/trace/timeline.h"

namespace ps {

namespace detail {
class OverlapFlow;
}

struct OverlapResult;

enum class Ways : std::uint8_t {
  two,    // upload + compute
  three,  // upload + compute + download
  four,   // upload + compute + device copy + download
};

std::string_view name(Ways ways);  // "two-way", ...
std::span<const Engine> engines_of(Ways ways);

// The recorder of one more run, after the timed ones.
enum class Tracing : std::uint8_t {
  none,
  events,  // the device is timed by events
  best,    // by CUPTI where it can be had; timed runs later in the process may then be slower
};

struct OverlapOptions {
  Device device = Device::best();
  Ways ways = Ways::three;
  std::size_t items = 8;
  std::size_t item_bytes = 256 * MiB;
  std::size_t chunk = 0;           // 0: chosen from the measured costs; item_bytes: uncut
  std::size_t fewest_chunks = 64;  // when chosen
  std::size_t depth = 4;
  double compute_ratio = 1;  // compute time over upload time
  int rounds = 0;            // or the arithmetic per element itself; 0: from compute_ratio
  int repeats = 7;
  std::vector<std::size_t> sweep_chunks{};  // timed beside the chosen one
  std::vector<std::size_t> sweep_depths{};
  Tracing tracing = Tracing::events;
  // The same work done another way, for the same chunk and depth: makes a run, which is timed in
  // turn with ours.
  std::function<std::function<void()>(const OverlapResult& so_far)> beside{};
  std::stop_token stop{};
  std::function<void(std::string_view what, double share)> progress{};
};

// One way of running: the engines' busy times and the wall time.
struct OverlapRun {
  double upload = 0, compute = 0, device_copy = 0, download = 0;  // busy seconds
  double seconds = 0;
  double transfer() const { return upload + device_copy + download; }
};

struct SweepPoint {
  std::size_t chunk = 0, depth = 0;
  double seconds = 0;
  double predicted = 0;      // 0 where the model has nothing to say (depth)
  double submit_cpu_us = 0;  // per chunk, of the thread that enqueues
};

struct OverlapResult {
  Ways ways = Ways::three;
  std::size_t items = 0, item_bytes = 0, chunk = 0, chunks = 0, depth = 0;
  double predicted = 0;  // for the chosen chunk
  Engines engines;
  OverlapRun sequential;  // busy times by events
  OverlapRun pipelined;   // busy times of the traced run, wall time of the timed ones
  OverlapTimes times;
  std::optional<double> beside_seconds;
  OverlapFigures figures;
  Gaps upload_gaps;  // of the traced run
  // H2D bytes over the union of its busy intervals, over the plain copy's rate.
  double upload_rate_share = 0;
  double submit_cpu_us = 0;       // per chunk, of the thread that enqueues
  std::uint64_t allocations = 0;  // during the timed runs
  std::vector<SweepPoint> sweep;
  Timeline sequential_timeline, pipelined_timeline;
  std::string_view traced_by;  // "CUPTI", "events" or "clocks"; empty when nothing was traced
};

// Allocates the bytes once; runs as many experiments on them as wanted. Every run's result is
// checked bit by bit on a sample, on poisoned memory, and a wrong one throws std::runtime_error.
class OverlapExperiment {
 public:
  // Throws InvalidArgument naming the option, OutOfMemory.
  OverlapExperiment(const Device& device, std::size_t items, std::size_t item_bytes);

  // Throws InvalidArgument, Unsupported (four-way with fewer than three copy engines), Cancelled.
  std::unique_ptr<OverlapResult> run(const OverlapOptions& options);

  const Yardstick& yardstick() const { return yardstick_; }

 private:
  const Engines& engines(const OverlapOptions& options);
  void time_in_turn(const OverlapOptions& options, detail::OverlapFlow& pipelined,
                    OverlapResult& result);
  SweepPoint time_point(const OverlapOptions& options, const OverlapResult& result,
                        std::size_t chunk, std::size_t depth);

  std::size_t items_, item_bytes_;
  Yardstick yardstick_;
  std::vector<std::pair<double, Engines>> measured_;  // by compute ratio; rounds count negative
};

}  // namespace ps
