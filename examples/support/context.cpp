#include "support/context.h"

#include <algorithm>

#include "penstock/base/error.h"
#include "penstock/base/units.h"
#include "penstock/trace/overlap.h"
#include "support/timing.h"

namespace ladder {
namespace {

constexpr std::size_t fewest_bytes = 4 * ps::MiB;

std::size_t suitable_bytes(const Settings& settings) {
  const bool gpu = settings.device.kind() == ps::DeviceKind::cuda;
  if (settings.quick) return (gpu ? 64 : 8) * ps::MiB;
  return gpu ? 2 * ps::GiB : 256 * ps::MiB;
}

bool downloads(const Work& work) {
  return std::ranges::find(work.engines, ps::Engine::download) != work.engines.end();
}

}  // namespace

Context::Context(const Settings& settings) : settings_(settings) {
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

Data& Context::data() {
  if (!data_) data_ = std::make_unique<Data>(device(), bytes());
  return *data_;
}

const Engines& Context::engines() {
  if (!engines_) {
    engines_ = std::make_unique<Engines>(
        measure_engines(device(), data(), settings_.chunk, settings_.stop));
  }
  return *engines_;
}

ps::MemoryView Context::piece(ps::MemoryView whole, std::size_t i) {
  const std::size_t begin = i * chunk();
  return whole.sub(begin, std::min(chunk(), whole.bytes - begin));
}

double Context::median_seconds(const std::function<void()>& run) {
  return ladder::median_seconds(quick() ? 3 : 7, settings_.stop, run);
}

Row Context::measure(std::string label, const Work& work, const std::function<void(Trace&)>& run) {
  Row row{.label = std::move(label), .work = work.name};
  Trace off;
  poison(work);
  run(off);
  check(work);
  row.seconds = median_seconds([&] { run(off); });

  ps::Timeline timeline;
  Trace on(device(), timeline);
  poison(work);
  run(on);
  on.finish();
  check(work);
  row.gaps = timeline.gaps(ps::Engine::upload);

  const Engines& alone = engines();
  set_overlap(row, alone.sequential_seconds(work.engines), alone.floor_seconds(work.engines),
              alone.ideal_seconds(work.engines));
  return row;
}

void Context::poison(const Work& work) {
  downloads(work) ? data().poison_output() : data().poison_result();
}

void Context::check(const Work& work) {
  downloads(work) ? data().check_output(rounds()) : data().check_result(rounds());
}

void set_overlap(Row& row, double sequential, double floor, double ideal) {
  if (floor > sequential * 1.02) {
    row.note += "invalid: the floor was measured above the sequential time; is the machine busy?";
    return;
  }
  const ps::OverlapFigures figures = ps::overlap_figures(
      {.sequential = sequential, .pipelined = row.seconds, .floor = floor, .ideal = ideal});
  row.hidden = figures.hidden;
  row.efficiency = figures.efficiency;
  row.note += figures.note;
}

}  // namespace ladder
