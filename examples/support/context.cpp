#include "support/context.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "penstock/base/checked.h"
#include "penstock/base/error.h"
#include "penstock/base/units.h"
#include "penstock/measure/floor.h"
#include "penstock/measure/timing.h"
#include "penstock/ops/iterate.h"
#include "support/profiler.h"

namespace ladder {
namespace {

using ps::Engine;

constexpr std::size_t fewest_bytes = 4 * ps::MiB;
constexpr std::size_t fewest_chunks = 64;

std::size_t suitable_bytes(const Settings& settings) {
  const bool gpu = settings.device.kind() == ps::DeviceKind::cuda;
  if (settings.quick) return (gpu ? 64 : 8) * ps::MiB;
  return gpu ? 2 * ps::GiB : 256 * ps::MiB;
}

}  // namespace

Context::Context(Settings settings) : settings_(std::move(settings)) {
  if (settings_.bytes == 0) settings_.bytes = suitable_bytes(settings_);
  if (settings_.bytes < fewest_bytes || settings_.bytes % sizeof(float) != 0) {
    throw ps::InvalidArgument("bytes", "a multiple of 4, and at least 4 MiB",
                              ps::format_bytes(settings_.bytes));
  }
  if (settings_.chunk > settings_.bytes || settings_.chunk % sizeof(float) != 0) {
    throw ps::InvalidArgument("chunk", "a multiple of 4 that is not larger than bytes",
                              ps::format_bytes(settings_.chunk));
  }
}

const ps::Yardstick& Context::data() {
  if (!data_) data_.emplace(device(), bytes());
  return *data_;
}

const ps::Engines& Context::engines() {
  if (!engines_) {
    engines_ = ps::measure_engines(data(), {.largest = std::min(bytes() / 2, 64 * ps::MiB)});
  }
  return *engines_;
}

std::size_t Context::chunk() {
  if (settings_.chunk == 0) {
    settings_.chunk = ps::choose_chunk(bytes(), engines().costs(engines_of(ps::Ways::three)),
                                       {.minimum_chunks = fewest_chunks})
                          .chunk_bytes;
  }
  return settings_.chunk;
}

std::size_t Context::chunks() { return ps::ceil_div(bytes(), chunk()); }

ps::MemoryView Context::piece(ps::MemoryView whole, std::size_t i) {
  const std::size_t begin = i * chunk();
  return whole.sub(begin, std::min(chunk(), whole.bytes - begin));
}

std::size_t Context::profile(const ps::Stream& stream, const std::function<void()>& enqueue) {
  const std::size_t number = profiled_rows_++;
  if (settings_.profile_row != number) return number;
  stream.synchronize();
  start_profiler();
  enqueue();
  stream.synchronize();
  stop_profiler();
  throw Profiled();
}

std::vector<double> Context::seconds_of_runs(const std::function<void()>& run) const {
  constexpr double enough_seconds = 2;
  const std::size_t fewest = 3, most = quick() ? 3 : 7;
  run();
  std::vector<double> seconds;
  double sum = 0;
  while (seconds.size() < fewest || (seconds.size() < most && sum < enough_seconds)) {
    if (settings_.stop.stop_requested()) throw ps::Cancelled();
    seconds.push_back(ps::seconds_of(run));
    sum += seconds.back();
  }
  return seconds;
}

double Context::median_seconds(const std::function<void()>& run) const {
  return ps::median(seconds_of_runs(run));
}

double Context::best_seconds(const std::function<void()>& run) const {
  ps::Floor floor;
  for (const double seconds : seconds_of_runs(run)) floor.add(seconds);
  return floor.seconds();
}

void Context::pass_engines(ps::Ways ways) {
  engines();
  ps::add_passes(data(), engines_of(ways), *engines_);
}

Row Context::measure(std::string label, ps::Ways ways, const std::function<void(Trace&)>& run) {
  Row row{.label = std::move(label), .work = std::string(name(ways))};
  Trace off;
  data().poison();
  run(off);
  ways == ps::Ways::two ? data().check_result(rounds()) : data().check_output(rounds());
  pass_engines(ways);
  row.seconds = median_seconds([&] { run(off); });
  pass_engines(ways);

  ps::Timeline timeline;
  Trace on(device(), timeline);
  run(on);
  on.finish();
  row.gaps = timeline.gaps(Engine::upload);
  set_overlap(row, limits(ways));
  return row;
}

ps::OverlapTimes Context::limits(ps::Ways ways) {
  ps::OverlapTimes times{.floor = engines().floor_seconds(engines_of(ways))};
  double alone = 0, slowest = 0;
  for (const Engine engine : engines_of(ways)) {
    times.sequential += sequential().busy_seconds(engine);
    alone += engines().alone(engine).seconds();
    slowest = std::max(slowest, engines().alone(engine).seconds());
  }
  // One chunk through every engine but the slowest fills and drains.
  times.ideal = times.floor + (alone - slowest) / static_cast<double>(chunks());
  return times;
}

// Everything in one stream: how long each engine is busy when nothing overlaps.
const ps::Timeline& Context::sequential() {
  if (sequential_) return *sequential_;
  const ps::Stream stream(device());
  const ps::DeviceBuffer spare(device(), chunk());
  sequential_.emplace();
  Trace trace(device(), *sequential_);
  for (std::size_t i = 0; i < chunks(); ++i) {
    const ps::MemoryView in = input(i), work = result(i), out = output(i);
    const ps::TensorView in_place = ps::floats(work);
    trace(Engine::upload, i, stream, [&] { ps::copy(work, in, stream); });
    trace(Engine::compute, i, stream,
          [&] { ps::iterate({.in = in_place, .out = in_place, .rounds = rounds()}, stream); });
    trace(Engine::device_copy, i, stream,
          [&] { ps::copy(spare.view().sub(0, work.bytes), work, stream); });
    trace(Engine::download, i, stream, [&] { ps::copy(out, work, stream); });
  }
  stream.synchronize();
  trace.finish();
  return *sequential_;
}

void set_overlap(Row& row, ps::OverlapTimes limits) {
  const ps::FloorVerdict verdict = ps::judge_by_floor(row.seconds, limits.floor);
  if (!verdict.kept()) {
    row.dropped = verdict.reason;
    return;
  }
  limits.pipelined = row.seconds;
  const ps::OverlapFigures figures = ps::overlap_figures(limits);
  row.hidden = figures.hidden;
  row.efficiency = figures.efficiency;
  row.note += figures.note;
}

}  // namespace ladder
