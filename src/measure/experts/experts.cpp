#include "penstock/measure/experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>

#include "measure/experts/decode.h"
#include "measure/experts/flow.h"
#include "measure/experts/streamed.h"
#include "measure/experts/work.h"
#include "penstock/base/checked.h"
#include "penstock/base/error.h"
#include "penstock/host/pipeline.h"
#include "penstock/trace/device_trace.h"

namespace ps {
namespace {

using detail::ExpertFlow;
using detail::ExpertWork;
using detail::StreamedWork;
using detail::throw_invalid;

constexpr std::int64_t tile_rows = 128;
constexpr std::int64_t most_sequences = 1024;  // of decode steps

void check_count(const char* name, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value >= least && value <= most) return;
  throw_invalid(name, fmt::format("from {} to {}", least, most), std::to_string(value));
}

void check(const ExpertOverlapOptions& o) {
  ExpertStore::bytes_needed(o.shape);
  check_count("experts", o.shape.experts, 1, 512);  // as route() allows
  check_count("choices", o.choices, 1, std::min<std::int64_t>(16, o.shape.experts));
  check_count("batch", o.batch, 1, 1 << 20);
  check_count("sequence", o.sequence, 1, 1 << 20);
  if (o.batch * o.sequence > 1 << 20) {
    throw_invalid("batch", "at most 2^20 tokens, batch * sequence",
                  fmt::format("{} * {}", o.batch, o.sequence));
  }
  check_count("rounding", o.rounding, 0, 1 << 16);
  check_count("distinct", o.distinct, 0, 1024);
  check_count("repeats", o.repeats, 1, 1 << 20);
  check_count("tries", o.tries, 1, 1 << 20);
  const auto counted = [](std::size_t count) {
    return static_cast<std::int64_t>(std::min<std::size_t>(count, 1 << 21));
  };
  check_count("streams", counted(o.streams), 1, 16);
  const auto check_depth = [&](const char* name, std::size_t depth) {
    check_count(name, counted(depth), 1, 4096);
  };
  check_count("decode_steps", counted(o.decode_steps), 0, 100'000);
  check_count("decode_cache", counted(o.decode_cache), 0, 1 << 20);
  check_depth("depth", o.depth);
  for (const std::size_t depth : o.sweep_depths) check_depth("sweep_depths", depth);
  if (o.from == ExpertsFrom::memory && o.device.kind() == DeviceKind::cpu) {
    throw_invalid("from", "disk: on the CPU device, experts in memory are computed where they are",
                  std::string(name(o.from)));
  }
}

ExpertOverlapRun expert_busy_times(const Timeline& timeline, double seconds) {
  return {.read = timeline.busy_seconds(Engine::disk),
          .upload = timeline.busy_seconds(Engine::upload),
          .compute = timeline.busy_seconds(Engine::compute),
          .seconds = seconds};
}

void set_configuration(const ExpertOverlapOptions& o, const ExpertWork& work,
                       ExpertOverlapResult& r) {
  r.shape = o.shape;
  r.choices = o.choices;
  r.batch = o.batch;
  r.sequence = o.sequence;
  r.rounding = o.rounding;
  r.distinct = work.distinct();
  r.from = o.from;
  r.direct = o.from == ExpertsFrom::disk && work.file().direct();
  r.depth = o.depth;
  r.streams = o.streams;
  r.needed = work.items().size();
  r.cache = std::min(o.cache, r.needed);
  r.loaded = r.needed - r.cache;
  r.bytes = static_cast<std::uint64_t>(r.loaded) * work.block_bytes();
  for (const detail::ExpertItem& item : work.items()) {
    r.rows += item.rows;
    r.padded_rows += ceil_div(item.rows, tile_rows) * tile_rows;
  }
}

// All that is measured.
class Experiment {
 public:
  Experiment(const ExpertOverlapOptions& options, ExpertOverlapResult& result)
      : o_(options),
        r_(result),
        work_(options),
        stream_(options.device),
        gpu_(options.device.kind() == DeviceKind::cuda) {
    set_configuration(o_, work_, r_);
    const bool disk = o_.from == ExpertsFrom::disk;
    if (disk && o_.packed) o_.packed(work_.path());
    ExpertFlowOptions alone{.depth = o_.depth, .streams = o_.streams, .cache = r_.cache};
    alone.read = alone.upload = alone.compute = false;
    if (r_.loaded > 0 && disk) {
      alone.read = true;
      read_.emplace(work_, alone);
    }
    if (r_.loaded > 0 && gpu_) {
      alone.read = false;
      alone.upload = true;
      upload_.emplace(work_, alone);
    }
    alone.read = alone.upload = false;
    alone.cache = 0;
    alone.compute = true;
    compute_.emplace(work_, alone);
  }

  // Each engine alone between the runs, all interleaved: background load affects all of them.
  void time(ExpertFlow& sequential, ExpertFlow& pipelined) {
    std::vector<double> together, one_by_one, busy, streamed;
    alone();
    for (int repeat = 0; repeat < o_.repeats; ++repeat) {
      together.push_back(timed(o_.timer, "pipelined", [&] { pipelined.run(nullptr, o_.stop); }));
      alone();
      Timeline timeline;
      one_by_one.push_back(
          timed(o_.timer, "sequential", [&] { sequential.run(&timeline, o_.stop); }));
      const ExpertOverlapRun run = expert_busy_times(timeline, 0);
      busy.push_back(run.load() + run.compute);
      alone();
      if (!streamed_) continue;
      forget_streamed();
      const std::size_t before = streamed_->loaded();
      streamed.push_back(timed(o_.timer, "streamed", [&] { run_streamed(); }));
      r_.streamed_loaded = streamed_->loaded() - before;
    }
    r_.sequential.seconds = median(one_by_one);
    r_.pipelined.seconds = median(together);
    if (streamed_) r_.streamed_seconds = median(streamed);
    r_.times.sequential = median(busy);
    r_.times.pipelined = r_.pipelined.seconds;
    r_.times.floor = r_.compute_alone.seconds();
    double sum = r_.times.floor;
    for (const Floor* floor : {&r_.read_alone, &r_.upload_alone}) {
      if (floor->passes() == 0) continue;
      r_.times.floor = std::max(r_.times.floor, floor->seconds());
      sum += floor->seconds();
    }
    r_.times.ideal =
        r_.times.floor + (sum - r_.times.floor) / static_cast<double>(work_.items().size());
    r_.figures = overlap_figures(r_.times);
    r_.verdict = judge_by_floor(r_.times.pipelined, r_.times.floor);
  }

  void run() {
    tell("checking the results", 0.35);
    ExpertFlow sequential(work_, {.depth = 1, .streams = 1, .cache = r_.cache, .sequential = true});
    ExpertFlow pipelined(work_, flow(o_.depth, r_.cache));
    const auto wanted = checked_run("sequential", nullptr,
                                    [&] { sequential.run(&r_.sequential_timeline, o_.stop); });
    checked_run("pipelined", &wanted, [&] { pipelined.run(nullptr, o_.stop); });
    make_streamed();
    if (streamed_) checked_run("StreamedExperts", &wanted, [&] { run_streamed(); });
    do {
      tell(++r_.tries > 1 ? "timing, once more" : "timing", 0.4);
      time(sequential, pipelined);
    } while (!r_.verdict.kept() && r_.tries < o_.tries);
    sweep(wanted);
    trace(sequential, pipelined);
    decode();
    tell("done", 1);
  }

 private:
  using ExpertFlowOptions = detail::ExpertFlowOptions;

  ExpertFlowOptions flow(std::size_t depth, std::size_t cache) const {
    return {.depth = depth, .streams = o_.streams, .cache = cache};
  }

  void tell(std::string_view what, double share) const {
    if (o_.stop.stop_requested()) throw Cancelled();
    if (o_.progress) o_.progress(what, share);
  }

  void alone() {
    const auto pass = [&](const char* what, std::optional<ExpertFlow>& flow, Floor& floor) {
      if (flow) floor.add(timed(o_.timer, what, [&] { flow->run(nullptr, o_.stop); }));
    };
    pass("read alone", read_, r_.read_alone);
    pass("upload alone", upload_, r_.upload_alone);
    pass("compute alone", compute_, r_.compute_alone);
  }

  std::vector<std::byte> checked_run(const char* what, const std::vector<std::byte>* wanted,
                                     const std::function<void()>& run) const {
    work_.poison(stream_);
    run();
    std::vector<std::byte> results = work_.results(stream_);
    if (wanted != nullptr && results != *wanted) {
      throw std::runtime_error(
          fmt::format("the results of {} differ from those of the sequential run", what));
    }
    return results;
  }

  void run_streamed() {
    streamed_->run([&](std::int64_t layer) { return work_.call(layer); });
  }

  void emplace_streamed() {
    streamed_ = std::make_unique<StreamedWork>(work_, o_.depth + o_.cache,
                                               static_cast<std::size_t>(o_.shape.layers));
  }

  void make_streamed() {
    if (r_.distinct < r_.shape.layers * r_.shape.experts) {
      r_.why_not_streamed = "experts share their weights";
      return;
    }
    try {
      emplace_streamed();
      r_.streamed_slots = streamed_->slots();
    } catch (const OutOfMemory& error) {
      r_.why_not_streamed = error.what();
    }
  }

  // Without a cache, nothing is left of the run before, in host memory either.
  void forget_streamed() {
    if (r_.cache > 0) return;
    if (o_.from == ExpertsFrom::disk) {
      streamed_.reset();
      emplace_streamed();
    } else {
      streamed_->empty_cache();
    }
  }

  void sweep(const std::vector<std::byte>& wanted) {
    std::vector<std::pair<std::size_t, std::size_t>> points;
    for (const std::size_t depth : o_.sweep_depths) points.emplace_back(depth, r_.cache);
    for (const std::size_t cache : o_.sweep_caches) {
      points.emplace_back(o_.depth, std::min(cache, r_.needed));
    }
    for (std::size_t i = 0; i < points.size(); ++i) {
      tell("sweep", 0.7 + 0.25 * static_cast<double>(i) / static_cast<double>(points.size()));
      const auto [depth, cache] = points[i];
      ExpertFlow each(work_, flow(depth, cache));
      checked_run("the sweep", &wanted, [&] { each.run(nullptr, o_.stop); });
      r_.sweep.push_back(
          {.depth = depth, .cache = cache, .seconds = median_seconds(o_.repeats, [&] {
                                             each.run(nullptr, o_.stop);
                                           })});
    }
  }

  void trace(ExpertFlow& sequential, ExpertFlow& pipelined) {
    const bool cupti = gpu_ && o_.tracing == Tracing::best && DeviceTrace::why_not().empty();
    const auto record = [&](ExpertFlow& flow, Timeline& timeline, ExpertOverlapRun& run) {
      timeline.clear();
      if (cupti) {
        DeviceTrace device_trace(timeline);
        flow.run(&device_trace, o_.stop);
      } else {
        flow.run(&timeline, o_.stop);
      }
      run = expert_busy_times(timeline, run.seconds);
    };
    if (o_.tracing == Tracing::none) {
      r_.sequential = expert_busy_times(r_.sequential_timeline, r_.sequential.seconds);
      r_.sequential_timeline.clear();
      return;
    }
    tell("traced", 0.95);
    record(sequential, r_.sequential_timeline, r_.sequential);
    record(pipelined, r_.pipelined_timeline, r_.pipelined);
    if (streamed_) {
      forget_streamed();
      streamed_->trace(r_.streamed_timeline, [&] { run_streamed(); });
    }
    r_.traced_by = cupti ? "CUPTI" : gpu_ ? "events" : "clocks";
  }

  void decode() {
    if (o_.decode_steps == 0) return;
    if (!streamed_) {
      r_.why_no_decode = r_.why_not_streamed;
      return;
    }
    if (o_.batch > most_sequences) {
      r_.why_no_decode = fmt::format("more than {} sequences", most_sequences);
      return;
    }
    tell("decode steps", 0.96);
    streamed_.reset();  // its memory is that of the cache
    try {
      detail::measure_decode(o_, work_, r_.decode.emplace());
    } catch (const OutOfMemory& error) {
      r_.decode.reset();
      r_.why_no_decode = error.what();
    }
  }

  const ExpertOverlapOptions& o_;
  ExpertOverlapResult& r_;
  ExpertWork work_;
  Stream stream_;
  const bool gpu_;
  std::optional<ExpertFlow> read_, upload_, compute_;
  std::unique_ptr<StreamedWork> streamed_;
};

}  // namespace

std::span<const ExpertModel> expert_models() {
  static const std::array models{
      ExpertModel{.name = "Qwen3-30B-A3B",
                  .shape = {.layers = 48, .experts = 128, .hidden = 2048, .width = 768},
                  .choices = 8},
      ExpertModel{.name = "Mixtral-8x7B",
                  .shape = {.layers = 32, .experts = 8, .hidden = 4096, .width = 14336},
                  .choices = 2},
      ExpertModel{.name = "OLMoE",
                  .shape = {.layers = 16, .experts = 64, .hidden = 2048, .width = 1024},
                  .choices = 8},
      ExpertModel{.name = "DeepSeek-V3",
                  .shape = {.layers = 58, .experts = 256, .hidden = 7168, .width = 2048},
                  .choices = 8},
      ExpertModel{.name = "gpt-oss-120b",
                  .shape = {.layers = 36,
                            .experts = 128,
                            .hidden = 2880,
                            .width = 2880,
                            .layout = GateUpLayout::interleaved,
                            .transposed = true,
                            .gate_up_bias = true,
                            .down_bias = true},
                  .choices = 4,
                  .activation = MoeActivation::clamped_swiglu}};
  return models;
}

std::string_view name(ExpertsFrom from) { return from == ExpertsFrom::disk ? "disk" : "memory"; }

std::unique_ptr<ExpertOverlapResult> measure_expert_overlap(const ExpertOverlapOptions& options) {
  check(options);
  auto result = std::make_unique<ExpertOverlapResult>();
  Experiment(options, *result).run();
  return result;
}

}  // namespace ps
