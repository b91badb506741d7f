// Measures expert layers whose weights do not stay on the device: every expert is loaded, then
// computed. Sequentially, in a pipeline of slots, and by StreamedExperts, beside the time of the
// slowest engine alone.
//
// The model is synthetic: random weights, random tokens, and a router with random logits, whose
// choices are made before anything is timed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/measure/floor.h"
#include "penstock/measure/overlap.h"
#include "penstock/measure/timing.h"
#include "penstock/ops/moe.h"
#include "penstock/outofcore/expert_store.h"
#include "penstock/trace/overlap.h"
#include "penstock/trace/timeline.h"

namespace ps {

// The expert layers of a published model.
struct ExpertModel {
  std::string_view name{};
  ExpertShape shape;  // with all of its expert layers
  std::int64_t choices = 0;
  MoeActivation activation = MoeActivation::swiglu;
};
std::span<const ExpertModel> expert_models();

enum class ExpertsFrom : std::uint8_t {
  memory,  // page-locked host memory
  disk,    // a file of packed experts
};
std::string_view name(ExpertsFrom from);

struct ExpertOverlapOptions {
  Device device = Device::best();
  ExpertShape shape{};
  std::int64_t choices = 8;  // experts of each token, at most 16
  MoeActivation activation = MoeActivation::swiglu;
  MoeKernel kernel = MoeKernel::best;      // of the products, on a GPU
  std::int64_t batch = 1, sequence = 512;  // tokens are batch * sequence
  std::int64_t rounding = 0;  // tokens per expert are rounded to multiples of this; 0: they are not
  ExpertsFrom from = ExpertsFrom::memory;  // on the CPU device, only `disk` has anything to load
  std::filesystem::path directory = ".";   // of the temporary file
  // Experts with weights of their own, at most 1024; the others share these. 0: all.
  std::int64_t distinct = 0;
  std::size_t depth = 4;    // slots that experts are loaded into
  std::size_t streams = 2;  // 1: everything on one; else one for products, the others for copies
  std::size_t cache = 0;    // experts that stay loaded: those with the most tokens
  int repeats = 5;
  int tries = 3;  // most measurements; a result that is faster than its floor allows is repeated
  std::vector<std::size_t> sweep_depths{}, sweep_caches{};  // further depths and caches to time
  // Decode steps, of one token of each of at most 1024 sequences, whose experts are drawn by Zipf's
  // law, in an order of its own per layer; at most 100000. They begin with an empty cache.
  std::size_t decode_steps = 0;
  std::size_t decode_cache = 0;  // experts that it has room for; 0: a quarter of all
  Tracing tracing = Tracing::events;
  std::stop_token stop{};
  std::function<void(std::string_view what, double share)> progress{};
  // Called with the path of the file of packed experts, before anything is timed. The file is there
  // until measure_expert_overlap() returns.
  std::function<void(const std::filesystem::path& file)> packed{};
  // For tests. Times the runs "read alone", "upload alone", "compute alone", "pipelined",
  // "sequential" and "streamed"; each decode step is "decode", beside "load alone".
  Timer timer{};
};

// Busy times of the engines, and wall time, in seconds.
struct ExpertOverlapRun {
  double read = 0, upload = 0, compute = 0;
  double seconds = 0;
  double load() const { return read + upload; }
};

struct ExpertSweepPoint {
  std::size_t depth = 0, cache = 0;
  double seconds = 0;
};

// One token of each sequence, through all layers.
struct ExpertDecodeStep {
  std::uint64_t needed = 0;                      // experts: the sum of the next three
  std::uint64_t hits = 0, late = 0, misses = 0;  // as in ExpertStatistics
  std::uint64_t bytes = 0;                       // that were copied; on the CPU device, read
  double seconds = 0;
};

// Decode steps through StreamedExperts, which learns from the tokens what to keep.
struct ExpertDecode {
  std::size_t slots = 0;  // experts that the cache has room for
  std::vector<ExpertDecodeStep> steps;
  std::size_t counted_from = 0;  // the figures are of this step and those after it: half of all
  // Hits divided by the experts needed: of the cache, of the best set of `slots` experts that never
  // changes, and of a cache that knows what comes next.
  double hit_rate = 0, best_fixed_set = 0, offline_optimum = 0;
  Engine link = Engine::upload;  // over which experts come: the slower one, or the disk
  // The time in which the link alone moves the same bytes, divided by that of the steps. None, and
  // the reason, if nothing was loaded or the figure is a measuring error.
  std::optional<double> share_of_link;
  std::string why_no_share;
  Timeline timeline;  // of a few further steps, unless nothing is traced
};

struct ExpertOverlapResult {
  ExpertShape shape;
  std::int64_t choices = 0, batch = 0, sequence = 0, rounding = 0, distinct = 0;
  ExpertsFrom from = ExpertsFrom::memory;
  bool direct = false;  // from a disk: bypassed the page cache
  std::size_t depth = 0, streams = 0, cache = 0;
  std::size_t needed = 0;        // experts that have tokens, of all layers
  std::size_t loaded = 0;        // of those, the ones that are not cached
  std::uint64_t bytes = 0;       // that are loaded
  std::int64_t rows = 0;         // (token, choice) pairs that are computed
  std::int64_t padded_rows = 0;  // after padding each expert's rows to tiles of 128
  Floor read_alone, upload_alone, compute_alone;  // passes; none for an engine that is not used
  ExpertOverlapRun sequential, pipelined;
  OverlapTimes times;
  OverlapFigures figures;
  FloorVerdict verdict;  // on the pipelined run
  int tries = 0;
  // StreamedExperts with as many slots as `depth` and `cache` together, or as many as it needs at
  // least; no time, and the reason, if there is not enough device memory, or weights are shared.
  // Without `cache` it begins each run with nothing loaded; otherwise with what the run before
  // left.
  std::optional<double> streamed_seconds;
  std::string why_not_streamed;
  std::size_t streamed_slots = 0;
  std::size_t streamed_loaded = 0;  // experts, in the last run
  std::vector<ExpertSweepPoint> sweep;
  std::optional<ExpertDecode> decode;
  std::string why_no_decode;  // if steps were asked for
  // The third one is made of events around the products of StreamedExperts and of its records of
  // its calls.
  Timeline sequential_timeline, pipelined_timeline, streamed_timeline;
  std::string_view traced_by;  // "CUPTI", "events" or "clocks"; empty if nothing was traced
};

// Runs the measurement. All ways of computing must give the same bits; a mismatch throws
// std::runtime_error. A temporary file is removed, whatever happens. Throws InvalidArgument naming
// the option, SystemError naming the directory, OutOfMemory, Unsupported, Cancelled.
std::unique_ptr<ExpertOverlapResult> measure_expert_overlap(const ExpertOverlapOptions& options);

// As the reports of measure/report.h; "kind" is "moe".
std::string as_json(const ExpertOverlapResult& result, const Device& device, bool timelines);

}  // namespace ps
