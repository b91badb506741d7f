#include "penstock/measure/overlap.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "measure/overlap_flow.h"
#include "measure/passes.h"
#include "penstock/base/checked.h"
#include "penstock/base/error.h"
#include "penstock/measure/timing.h"
#include "penstock/trace/device_trace.h"

namespace ps {
namespace {

constexpr std::size_t chunk_step = 64 * KiB;

OverlapRun busy_times(const Timeline& timeline) {
  return {.upload = timeline.busy_seconds(Engine::upload),
          .compute = timeline.busy_seconds(Engine::compute),
          .device_copy = timeline.busy_seconds(Engine::device_copy),
          .download = timeline.busy_seconds(Engine::download)};
}

std::size_t checked_total(std::size_t items, std::size_t item_bytes) {
  if (items == 0) detail::throw_invalid("items", "at least 1", "0");
  if (item_bytes == 0 || item_bytes % sizeof(float) != 0) {
    detail::throw_invalid("item_bytes", "a multiple of 4 above 0", std::to_string(item_bytes));
  }
  return checked_mul(items, item_bytes, "items * item_bytes");
}

void check(const OverlapOptions& options, const Yardstick& yardstick) {
  const auto refuse = [](const char* argument, const char* expected, auto given) {
    detail::throw_invalid(argument, expected, fmt::format("{}", given));
  };
  const auto bad_chunk = [&](std::size_t chunk) {
    return chunk > options.item_bytes || chunk % sizeof(float) != 0;
  };
  if (options.depth == 0) refuse("depth", "at least 1", options.depth);
  if (options.repeats < 1) refuse("repeats", "at least 1", options.repeats);
  if (options.tries < 1) refuse("tries", "at least 1", options.tries);
  if (options.fewest_chunks == 0) refuse("fewest_chunks", "at least 1", 0);
  if (options.rounds < 0) refuse("rounds", "at least 0", options.rounds);
  // Written so that NaN fails.
  const bool sensible = options.compute_ratio > 0 && options.compute_ratio <= 1000;
  if (!sensible) refuse("compute_ratio", "above 0 and at most 1000", options.compute_ratio);
  if (bad_chunk(options.chunk)) {
    refuse("chunk", "a multiple of 4, at most one item", options.chunk);
  }
  for (const std::size_t chunk : options.sweep_chunks) {
    if (chunk == 0 || bad_chunk(chunk)) {
      refuse("sweep_chunks", "multiples of 4 above 0, at most one item", chunk);
    }
  }
  for (const std::size_t depth : options.sweep_depths) {
    if (depth == 0) refuse("sweep_depths", "at least 1", depth);
  }
  const Capabilities capabilities = yardstick.device().capabilities();
  if (options.ways == Ways::four && yardstick.device().kind() == DeviceKind::cuda &&
      capabilities.copy_engines < 3) {
    throw Unsupported(
        fmt::format("four-way overlap needs three copy engines and {} has {}; use three-way",
                    capabilities.name, capabilities.copy_engines));
  }
}

// The chosen chunk, evened out so that an item's chunks are alike.
std::size_t choose(const OverlapOptions& options, std::size_t total,
                   std::span<const EngineCost> costs) {
  const ChunkChoice choice = choose_chunk(total, costs,
                                          {.granularity = std::min(chunk_step, options.item_bytes),
                                           .minimum_chunks = options.fewest_chunks,
                                           .maximum_bytes = options.item_bytes});
  const std::size_t pieces = ceil_div(options.item_bytes, choice.chunk_bytes);
  return std::min(options.item_bytes,
                  align_up(ceil_div(options.item_bytes, pieces), 4096, "chunk"));
}

// Time of one chunk through every engine but the slowest: what fills and drains.
double fill_seconds(const Engines& engines, Ways ways, std::size_t chunk, std::size_t total) {
  double sum = 0, slowest = 0;
  for (const Engine engine : engines_of(ways)) {
    sum += engines.alone(engine).seconds();
    slowest = std::max(slowest, engines.alone(engine).seconds());
  }
  return (sum - slowest) * static_cast<double>(chunk) / static_cast<double>(total);
}

void share_floors(const Engines& from, Engines& to) {
  to.upload.floor = from.upload.floor;
  to.download.floor = from.download.floor;
  to.both_ways.floor = from.both_ways.floor;
  to.device_copy.floor = from.device_copy.floor;
  // Two ratios may come out as the same number of rounds, each with passes of its own.
  if (to.rounds == from.rounds && from.compute.seconds() <= to.compute.seconds()) {
    to.compute.floor = from.compute.floor;
  }
}

detail::FlowOptions flow_options(const OverlapOptions& options, const OverlapResult& r,
                                 std::size_t chunk, std::size_t depth) {
  return {.ways = options.ways,
          .item_bytes = r.item_bytes,
          .chunk = chunk,
          .depth = depth,
          .rounds = r.engines.rounds};
}

// One more run, with its timeline, which may have been recorded before by less exact means.
void record(detail::OverlapFlow& flow, Timeline& timeline, bool cupti,
            const std::stop_token& stop) {
  timeline.clear();
  if (!cupti) {
    flow.run(&timeline, stop);
    return;
  }
  DeviceTrace trace(timeline);
  flow.run(&trace, stop);
}

}  // namespace

std::string_view name(Ways ways) {
  switch (ways) {
    case Ways::two:
      return "two-way";
    case Ways::three:
      return "three-way";
    case Ways::four:
      return "four-way";
  }
  return "unknown";
}

std::span<const Engine> engines_of(Ways ways) {
  static constexpr std::array two{Engine::upload, Engine::compute};
  static constexpr std::array three{Engine::upload, Engine::compute, Engine::download};
  static constexpr std::array four{Engine::upload, Engine::compute, Engine::device_copy,
                                   Engine::download};
  switch (ways) {
    case Ways::two:
      return two;
    case Ways::three:
      return three;
    case Ways::four:
      return four;
  }
  return {};
}

OverlapExperiment::OverlapExperiment(const Device& device, std::size_t items,
                                     std::size_t item_bytes)
    : items_(items),
      item_bytes_(item_bytes),
      yardstick_(device, checked_total(items, item_bytes)) {}

const Engines& OverlapExperiment::engines(const OverlapOptions& options) {
  const double key = options.rounds > 0 ? -options.rounds : options.compute_ratio;
  for (const auto& [known, engines] : measured_) {
    if (known == key) return engines;
  }
  const EnginesOptions how{
      .compute_ratio = options.compute_ratio, .rounds = options.rounds, .largest = item_bytes_};
  Engines fresh = measured_.empty() ? Engines{} : measured_.front().second;
  if (measured_.empty()) measure_link(yardstick_, how, fresh);
  measure_compute(yardstick_, how, fresh);
  measured_.emplace_back(key, fresh);
  return measured_.back().second;
}

// The passes of an experiment's runs add up: those of the link count for every ratio.
void OverlapExperiment::keep_floors(const Engines& engines) {
  for (auto& [key, known] : measured_) share_floors(engines, known);
}

void OverlapExperiment::judge(OverlapResult& r) const {
  for (const auto& [key, known] : measured_) {
    if (known.rounds == r.engines.rounds) share_floors(known, r.engines);
  }
  r.times.floor = r.engines.floor_seconds(engines_of(r.ways));
  r.times.ideal = r.times.floor + fill_seconds(r.engines, r.ways, r.chunk, yardstick_.bytes());
  r.figures = overlap_figures(r.times);
  r.verdict = judge_by_floor(r.times.pipelined, r.times.floor);
}

// Each engine alone before, between and after the runs, all interleaved: on a machine that is not
// quiet, background load affects all of them.
void OverlapExperiment::time_in_turn(const OverlapOptions& options, detail::OverlapFlow& pipelined,
                                     OverlapResult& r) {
  const detail::Passes passes(yardstick_, item_bytes_);
  const auto engines = engines_of(options.ways);
  std::vector<std::vector<double>> alone(engines.size());
  std::vector<double> both, ours, cpu, beside;
  const std::function<void()> other = options.beside ? options.beside(r) : nullptr;
  const auto pass = [&](std::string_view what, Alone& of, const Cut& cut, const auto& run) {
    const double seconds = timed(options.timer, fmt::format("{} alone", what), [&] { run(cut); });
    of.add(seconds, cut);
    return seconds;
  };
  const auto engine_pass = [&](Engine engine, const Cut& cut) {
    return pass(name(engine), r.engines.alone(engine), cut,
                [&](const Cut& c) { passes.run(engine, c, r.engines.rounds); });
  };
  const auto link_pass = [&](const Cut& cut) {
    return pass("both ways", r.engines.both_ways, cut, [&](const Cut& c) { passes.both_ways(c); });
  };
  const bool both_ways = uses_both_ways(engines);
  // The second kind of pass has the pipeline's own chunks and slots.
  const Cut same{.chunk = r.chunk, .slots = std::min(options.depth, yardstick_.bytes() / r.chunk)};
  const auto engines_alone = [&] {
    for (std::size_t e = 0; e < engines.size(); ++e) {
      alone[e].push_back(engine_pass(engines[e], r.engines.alone(engines[e]).cut));
      engine_pass(engines[e], same);
    }
    if (!both_ways) return;
    both.push_back(link_pass(r.engines.both_ways.cut));
    link_pass(same);
  };
  engines_alone();
  for (int repeat = 0; repeat < options.repeats; ++repeat) {
    RunReport report;
    ours.push_back(
        timed(options.timer, "pipelined", [&] { report = pipelined.run(nullptr, options.stop); }));
    cpu.push_back(report.submit_cpu_seconds);
    r.allocations += report.allocations;
    if (other) beside.push_back(timed(options.timer, "beside", other));
    engines_alone();
  }
  for (std::size_t e = 0; e < engines.size(); ++e) {
    r.engines.alone(engines[e]).retime(median(alone[e]));
  }
  if (both_ways) r.engines.both_ways.retime(median(both));
  if (other) r.beside_seconds = median(beside);
  r.pipelined.seconds = median(ours);
  r.submit_cpu_us = median(cpu) * 1e6 / static_cast<double>(r.chunks);
}

SweepPoint OverlapExperiment::time_point(const OverlapOptions& options, const OverlapResult& r,
                                         std::size_t chunk, std::size_t depth) {
  detail::OverlapFlow flow(yardstick_, flow_options(options, r, chunk, depth));
  flow.run_checked(options.stop);
  std::vector<double> seconds, cpu;
  for (int repeat = 0; repeat < options.repeats; ++repeat) {
    RunReport report;
    seconds.push_back(seconds_of([&] { report = flow.run(nullptr, options.stop); }));
    cpu.push_back(report.submit_cpu_seconds);
  }
  const std::vector<EngineCost> costs = r.engines.costs(engines_of(options.ways));
  return {
      .chunk = chunk,
      .depth = depth,
      .seconds = median(seconds),
      .predicted = depth == options.depth ? predict_seconds(yardstick_.bytes(), chunk, costs) : 0,
      .submit_cpu_us = median(cpu) * 1e6 / static_cast<double>(flow.chunks())};
}

std::unique_ptr<OverlapResult> OverlapExperiment::run(const OverlapOptions& given) {
  OverlapOptions options = given;
  options.items = items_;
  options.item_bytes = item_bytes_;
  check(options, yardstick_);
  const std::size_t total = yardstick_.bytes();
  const auto tell = [&](std::string_view what, double share) {
    if (options.stop.stop_requested()) throw Cancelled();
    if (options.progress) options.progress(what, share);
  };

  auto result = std::make_unique<OverlapResult>();
  OverlapResult& r = *result;
  tell("engines alone", 0);
  r.engines = engines(options);
  r.ways = options.ways;
  r.items = items_;
  r.item_bytes = item_bytes_;
  r.depth = options.depth;
  r.chunk = options.chunk > 0 ? options.chunk
                              : choose(options, total, r.engines.costs(engines_of(options.ways)));

  tell("sequential", 0.3);
  detail::OverlapFlow sequential(yardstick_, {.ways = options.ways,
                                              .item_bytes = item_bytes_,
                                              .chunk = item_bytes_,
                                              .depth = 1,
                                              .rounds = r.engines.rounds,
                                              .sequential = true});
  sequential.run_checked(options.stop);
  const double one_by_one =
      median_seconds(options.repeats, [&] { sequential.run(nullptr, options.stop); });
  record(sequential, r.sequential_timeline, false, options.stop);
  r.sequential = busy_times(r.sequential_timeline);
  r.sequential.seconds = one_by_one;

  tell("pipelined", 0.5);
  detail::OverlapFlow pipelined(yardstick_, flow_options(options, r, r.chunk, options.depth));
  r.chunks = pipelined.chunks();
  pipelined.run_checked(options.stop);
  r.times.sequential = r.sequential.transfer() + r.sequential.compute;
  do {
    if (++r.tries > 1) tell("pipelined, once more", 0.5);
    time_in_turn(options, pipelined, r);
    keep_floors(r.engines);
    r.times.pipelined = r.pipelined.seconds;
    judge(r);
  } while (!r.verdict.kept() && r.tries < options.tries);
  r.predicted = predict_seconds(total, r.chunk, r.engines.costs(engines_of(options.ways)));

  std::vector<std::pair<std::size_t, std::size_t>> points;
  for (const std::size_t chunk : options.sweep_chunks) points.emplace_back(chunk, options.depth);
  for (const std::size_t depth : options.sweep_depths) points.emplace_back(r.chunk, depth);
  for (std::size_t i = 0; i < points.size(); ++i) {
    tell("sweep", 0.6 + 0.4 * static_cast<double>(i) / static_cast<double>(points.size()));
    r.sweep.push_back(time_point(options, r, points[i].first, points[i].second));
  }

  if (options.tracing != Tracing::none) {
    tell("traced", 0.99);
    const bool gpu = yardstick_.device().kind() == DeviceKind::cuda;
    const bool cupti = gpu && options.tracing == Tracing::best && DeviceTrace::why_not().empty();
    if (cupti) record(sequential, r.sequential_timeline, cupti, options.stop);
    record(pipelined, r.pipelined_timeline, cupti, options.stop);
    r.traced_by = cupti ? "CUPTI" : gpu ? "events" : "clocks";
    const double seconds = r.pipelined.seconds;
    r.pipelined = busy_times(r.pipelined_timeline);
    r.pipelined.seconds = seconds;
    r.upload_gaps = r.pipelined_timeline.gaps(Engine::upload);
    r.upload_rate_share = r.engines.upload.seconds() / r.pipelined.upload;
  }
  tell("done", 1);
  return result;
}

}  // namespace ps
