// Measures copies and computation sequentially and overlapped: the times, how much was hidden, and
// how close that is to the floor.
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
#include <utility>
#include <vector>

#include "penstock/base/units.h"
#include "penstock/host/pipeline.h"
#include "penstock/measure/engines.h"
#include "penstock/measure/floor.h"
#include "penstock/measure/timing.h"
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

// How one extra run, after the timed ones, is traced.
enum class Tracing : std::uint8_t {
  none,
  events,  // by CUDA events
  best,    // by CUPTI if available; timed runs later in the same process may then be slower
};

struct OverlapOptions {
  Device device = Device::best();
  Ways ways = Ways::three;
  std::size_t items = 8;
  std::size_t item_bytes = 256 * MiB;
  std::size_t chunk = 0;           // bytes; 0: chosen from the measured costs
  std::size_t fewest_chunks = 64;  // if the chunk is chosen
  std::size_t depth = 4;
  double compute_ratio = 1;  // target compute time / upload time
  int rounds = 0;            // of iterate(); 0: from compute_ratio
  int repeats = 7;
  int tries = 3;  // most measurements; a result that is faster than its floor allows is repeated
  std::vector<std::size_t> sweep_chunks{};  // further chunk sizes and depths to time
  std::vector<std::size_t> sweep_depths{};
  Tracing tracing = Tracing::events;
  // Returns another implementation of the same work, for the same chunk and depth. Its runs are
  // interleaved with ours and timed.
  std::function<std::function<void()>(const OverlapResult& so_far)> beside{};
  std::stop_token stop{};
  std::function<void(std::string_view what, double share)> progress{};
  // For tests. Times the pipelined run ("pipelined"), the other implementation ("beside") and the
  // engines ("upload alone", ...).
  Timer timer{};
};

// Busy times of the engines, and wall time, in seconds.
struct OverlapRun {
  double upload = 0, compute = 0, device_copy = 0, download = 0;
  double seconds = 0;  // wall time
  double transfer() const { return upload + device_copy + download; }
};

struct SweepPoint {
  std::size_t chunk = 0, depth = 0;
  double seconds = 0;
  double predicted = 0;      // seconds; 0 for depths, which the model does not cover
  double submit_cpu_us = 0;  // CPU time of the enqueuing thread per chunk, in microseconds
};

struct OverlapResult {
  Ways ways = Ways::three;
  std::size_t items = 0, item_bytes = 0, chunk = 0, chunks = 0, depth = 0;
  double predicted = 0;  // seconds, for the chosen chunk
  Engines engines;
  OverlapRun sequential;  // busy times by events
  OverlapRun pipelined;   // busy times of the traced run, wall time of the timed runs
  OverlapTimes times;
  std::optional<double> beside_seconds;
  OverlapFigures figures;
  FloorVerdict verdict;  // on the pipelined run
  int tries = 0;
  Gaps upload_gaps;  // of the traced run
  // Upload rate while uploads are busy / rate of the upload alone.
  double upload_rate_share = 0;
  double submit_cpu_us = 0;       // CPU time of the enqueuing thread per chunk, in microseconds
  std::uint64_t allocations = 0;  // during the timed runs
  std::vector<SweepPoint> sweep;
  Timeline sequential_timeline, pipelined_timeline;
  std::string_view traced_by;  // "CUPTI", "events" or "clocks"; empty if nothing was traced
};

// Allocates the data once and runs any number of experiments on it. Outputs are poisoned before
// every run, and a sample of the results is compared bit by bit; a mismatch throws
// std::runtime_error.
class OverlapExperiment {
 public:
  // Throws InvalidArgument naming the option, OutOfMemory.
  OverlapExperiment(const Device& device, std::size_t items, std::size_t item_bytes);

  // Blocks until done. Throws InvalidArgument, Cancelled, and Unsupported for four-way work on a
  // GPU with fewer than three copy engines.
  std::unique_ptr<OverlapResult> run(const OverlapOptions& options);

  // Compares a result of this experiment with its floor again, using all passes of the engines so
  // far, including those of later runs.
  void judge(OverlapResult& result) const;

  const Yardstick& yardstick() const { return yardstick_; }

 private:
  const Engines& engines(const OverlapOptions& options);
  void keep_floors(const Engines& engines);
  void time_in_turn(const OverlapOptions& options, detail::OverlapFlow& pipelined,
                    OverlapResult& result);
  SweepPoint time_point(const OverlapOptions& options, const OverlapResult& result,
                        std::size_t chunk, std::size_t depth);

  std::size_t items_, item_bytes_;
  Yardstick yardstick_;
  std::vector<std::pair<double, Engines>> measured_;  // key: compute ratio, or negated rounds
};

}  // namespace ps
