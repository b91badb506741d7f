// What tracing costs: a three-way pipeline of 16 MiB chunks without a recorder, with the device
// timed by events, and with CUPTI. The run without a recorder is timed twice, interleaved with the
// others: the difference is their noise. CUPTI comes last, since it may slow down later runs of the
// process; how much it does is measured too. Writes bench/results/tracing.json.
//
//   bench_tracing --output bench/results/tracing.json
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "measure/overlap_flow.h"
#include "penstock/base/units.h"
#include "penstock/measure/limits.h"
#include "penstock/measure/timing.h"
#include "penstock/trace/device_trace.h"
#include "support/guarded.h"
#include "support/results.h"

namespace {

using bench::Json;
using bench::microseconds;

struct Settings {
  std::string output, device = "best";
  int repeats = 21;
};

void run(const Settings& settings) {
  const ps::Device device = ps::Device::parse(settings.device);
  const bool gpu = device.kind() == ps::DeviceKind::cuda;
  const std::size_t bytes = gpu ? 2 * ps::GiB : 256 * ps::MiB, chunk = 16 * ps::MiB;
  const int rounds = gpu ? 1700 : 16;
  const ps::Yardstick yardstick(device, bytes);
  ps::detail::OverlapFlow flow(
      yardstick, {.ways = ps::Ways::three, .item_bytes = bytes, .chunk = chunk, .rounds = rounds});
  flow.run_checked({});

  const std::string no_cupti = gpu ? ps::DeviceTrace::why_not() : "the CPU has its own clocks";
  std::vector<double> untraced, repeated, by_events, by_cupti, after_cupti;
  std::size_t events_seen = 0, cupti_seen = 0;
  for (int repeat = 0; repeat < settings.repeats; ++repeat) {
    untraced.push_back(ps::seconds_of([&] { flow.run(nullptr, {}); }));
    ps::Timeline timeline;
    by_events.push_back(ps::seconds_of([&] { flow.run(&timeline, {}); }));
    events_seen = timeline.entries().size();
    repeated.push_back(ps::seconds_of([&] { flow.run(nullptr, {}); }));
  }
  for (int repeat = 0; no_cupti.empty() && repeat < settings.repeats; ++repeat) {
    ps::Timeline traced;
    {
      ps::DeviceTrace trace(traced);
      by_cupti.push_back(ps::seconds_of([&] { flow.run(&trace, {}); }));
    }
    if (!traced.complete()) {
      throw std::runtime_error(fmt::format("CUPTI lost {} records", traced.lost_records()));
    }
    cupti_seen = traced.entries().size();
    after_cupti.push_back(ps::seconds_of([&] { flow.run(nullptr, {}); }));
  }
  // One interval per stage and chunk, or the trace is not complete.
  if (events_seen != 3 * flow.chunks() || (no_cupti.empty() && cupti_seen != 3 * flow.chunks())) {
    throw std::runtime_error(fmt::format("{} intervals by events and {} by CUPTI instead of {}",
                                         events_seen, cupti_seen, 3 * flow.chunks()));
  }

  ps::LimitsOptions limits = ps::quick_limits();
  limits.disk = false;
  bench::Results results("tracing", device, ps::measure_limits(device, limits));
  const double baseline = ps::median(untraced);
  const auto add = [&](const char* name, const std::vector<double>& seconds) {
    const double time = ps::median(seconds);
    fmt::print("{:<21} {:>9}  {:.4f} of the run without a recorder\n", name,
               ps::format_seconds(time), time / baseline);
    results.add({{"case", name},
                 {"params", {{"bytes", bytes}, {"chunk", chunk}, {"rounds", rounds}}},
                 {"correct", true},
                 {"max_error", 0},
                 {"tolerance", 0},
                 {"yardstick_us", microseconds(baseline)},
                 {"yardstick", "the run without a recorder"},
                 {"ours", {{"call_us", microseconds(time)}}},
                 {"peer", Json::object()},
                 {"metrics", {{"over_untraced", time / baseline}}}});
  };
  add("untraced, repeated", repeated);
  add(gpu ? "events" : "clocks", by_events);
  if (no_cupti.empty()) {
    add("cupti", by_cupti);
    add("untraced, after cupti", after_cupti);
  } else {
    fmt::print("cupti: not measured: {}\n", no_cupti);
  }
  if (!settings.output.empty()) results.write(settings.output);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("What tracing costs");
  Settings settings;
  app.add_option("--output", settings.output, "Results file to write");
  app.add_option("--device", settings.device, "cpu, cuda, cuda:N or best");
  app.add_option("--repeats", settings.repeats, "Runs of each kind; the median counts")
      ->check(CLI::Range(1, 1000));
  CLI11_PARSE(app, argc, argv);
  return bench::guarded("bench_tracing", [&] { run(settings); });
}
