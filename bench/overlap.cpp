// Overlap beside its floor and beside a loop written by hand: two-, three- and four-way, whole
// items, and how fast a slot comes back. A floor is the best pass over the whole program in which
// an engine, or the link both ways, ran alone. Writes bench/results/overlap.json.
//
//   bench_overlap --output bench/results/overlap.json
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "penstock/base/units.h"
#include "penstock/host/slot_ring.h"
#include "penstock/measure/overlap.h"
#include "penstock/measure/timing.h"
#include "support/guarded.h"
#include "support/plain_loop.h"
#include "support/results.h"
#include "support/side_stream.h"

namespace {

using bench::Json;
using bench::microseconds;

struct Settings {
  std::string output;
  std::string device = "best";
  bool quick = false;
};

Json sweep_of(const ps::OverlapResult& r) {
  Json sweep = Json::array();
  for (const ps::SweepPoint& point : r.sweep) {
    sweep.push_back({{"chunk", point.chunk},
                     {"depth", point.depth},
                     {"us", microseconds(point.seconds)},
                     {"predicted_us", microseconds(point.predicted)},
                     {"submit_cpu_us", point.submit_cpu_us}});
  }
  return sweep;
}

Json case_of(const std::string& name, const ps::OverlapResult& r) {
  Json metrics = {{"sequential_us", microseconds(r.times.sequential)},
                  {"pipelined_us", microseconds(r.times.pipelined)},
                  {"ideal_us", microseconds(r.times.ideal)},
                  {"hidden", r.figures.hidden ? Json(*r.figures.hidden) : Json(nullptr)},
                  {"efficiency", r.figures.efficiency},
                  {"over_floor", r.verdict.over_floor},
                  {"tries", r.tries},
                  {"predicted_us", microseconds(r.predicted)},
                  {"upload_rate_share", r.upload_rate_share},
                  {"upload_gaps", r.upload_gaps.count},
                  {"upload_gap_us", microseconds(r.upload_gaps.total_seconds)},
                  {"submit_cpu_us", r.submit_cpu_us},
                  {"allocations", r.allocations},
                  {"sweep", sweep_of(r)}};
  const auto alone = [](const ps::Alone& a) {
    return Json{{"us", microseconds(a.seconds())},
                {"passes", a.floor.passes()},
                {"typical_us", microseconds(a.typical)},
                {"chunk", a.cut.chunk},
                {"slots", a.cut.slots},
                {"overhead_us", a.cost.overhead_seconds * 1e6},
                {"GBps", a.cost.bytes_per_second * 1e-9}};
  };
  metrics["alone"] = {{"upload", alone(r.engines.upload)},
                      {"download", alone(r.engines.download)},
                      {"both_ways", alone(r.engines.both_ways)},
                      {"compute", alone(r.engines.compute)},
                      {"device_copy", alone(r.engines.device_copy)}};
  Json result = {{"case", name},
                 {"params",
                  {{"ways", ps::name(r.ways)},
                   {"items", r.items},
                   {"item_bytes", r.item_bytes},
                   {"chunk", r.chunk},
                   {"chunks", r.chunks},
                   {"depth", r.depth},
                   {"rounds", r.engines.rounds}}},
                 {"correct", true},
                 {"max_error", 0},
                 {"tolerance", 0},
                 {"floor_us", microseconds(r.times.floor)},
                 {"ours", {{"call_us", microseconds(r.times.pipelined)}}},
                 {"peer", Json::object()},
                 {"metrics", metrics}};
  if (r.beside_seconds) {
    result["peer"]["plain_loop"] = {{"call_us", microseconds(*r.beside_seconds)}};
    result["metrics"]["over_plain_loop"] = r.times.pipelined / *r.beside_seconds;
  }
  return result;
}

void print_line(const std::string& name, const ps::OverlapResult& r) {
  const auto loop = r.beside_seconds;
  fmt::print("{:<12} {:>4} chunks of {:>9}: {:>9}, {:.4f} x its floor of {}, hidden {}\n", name,
             r.chunks, ps::format_bytes(r.chunk), ps::format_seconds(r.times.pipelined),
             r.verdict.over_floor, ps::format_seconds(r.times.floor),
             r.figures.hidden ? fmt::format("{:.4f}", *r.figures.hidden) : "-");
  fmt::print("{:<12} predicted {}, {:.1f} us of CPU time per chunk to enqueue{}\n", "",
             ps::format_seconds(r.predicted), r.submit_cpu_us,
             loop ? fmt::format("; the loop by hand {}, {:.4f} x the floor",
                                ps::format_seconds(*loop), *loop / r.times.floor)
                  : "");
}

void print_floors(const ps::Engines& engines) {
  const auto line = [](const char* name, const ps::Alone& alone) {
    fmt::print("  {:<12} {:>9}, best of {} passes; typically {}\n", name,
               ps::format_seconds(alone.seconds()), alone.floor.passes(),
               ps::format_seconds(alone.typical));
  };
  fmt::print("Engines alone:\n");
  line("upload", engines.upload);
  line("download", engines.download);
  line("both ways", engines.both_ways);
  line("compute", engines.compute);
  line("device copy", engines.device_copy);
}

class Overlap {
 public:
  Overlap(const ps::Device& device, bool quick, bench::Results& results)
      : device_(device),
        quick_(quick),
        results_(results),
        experiment_(device, 8, quick ? 4 * ps::MiB : 256 * ps::MiB) {}

  void run(const std::string& name, ps::OverlapOptions options) {
    options.repeats = quick_ ? 3 : 11;
    options.fewest_chunks = options.chunk == 0 ? 64 : 1;
    std::optional<bench::PlainLoop> loop;
    if (device_.kind() == ps::DeviceKind::cuda) {
      options.beside = [&](const ps::OverlapResult& r) {
        loop.emplace(
            experiment_.yardstick(),
            bench::PlainLoopOptions{
                .ways = r.ways, .chunk = r.chunk, .depth = r.depth, .rounds = r.engines.rounds});
        check(*loop, r);
        return [&loop] { loop->run(); };
      };
    }
    measured_.emplace_back(name, experiment_.run(options));
    print_line(name, *measured_.back().second);
  }

  // Every case is judged by the floors of the whole program.
  void finish() {
    print_floors(measured_.back().second->engines);
    fmt::print("By the best passes of all cases:\n");
    for (const auto& [name, result] : measured_) {
      experiment_.judge(*result);
      if (results_.add(case_of(name, *result))) print_line(name, *result);
    }
  }

 private:
  void check(bench::PlainLoop& loop, const ps::OverlapResult& r) const {
    const ps::Yardstick& yardstick = experiment_.yardstick();
    yardstick.poison();
    loop.run();
    if (r.ways == ps::Ways::two) {
      yardstick.check_result(r.engines.rounds);
    } else {
      yardstick.check_output(r.engines.rounds);
    }
  }

  ps::Device device_;
  bool quick_;
  bench::Results& results_;
  ps::OverlapExperiment experiment_;
  std::vector<std::pair<std::string, std::unique_ptr<ps::OverlapResult>>> measured_;
};

// Batches through four slots: what a slot's way back costs, for each kind of recycling, and whether
// it holds back the copies.
void recycle(const ps::Device& device, bool quick, bench::Results& results) {
  const std::size_t bytes = ps::MiB;
  const int batches = quick ? 200 : 10000;
  const ps::Stream stream(device);
  const ps::DeviceBuffer target(device, bytes);
  const ps::PinnedBuffer check(device, bytes), plain(device, 4 * bytes);

  ps::Floor bare;
  const auto bare_pass = [&] {
    bare.time([&] {
      for (int i = 0; i < batches; ++i) {
        ps::copy(target.view(), plain.view().sub(static_cast<std::size_t>(i % 4) * bytes, bytes),
                 stream);
      }
      stream.synchronize();
    });
  };
  bare_pass();

  Json kinds = Json::object();
  struct Kind {
    const char* name;
    ps::Waiting waiting;
  };
  const Kind all[] = {{"thread_poll", ps::Waiting::poll},
                      {"thread_spin", ps::Waiting::spin},
                      {"thread_block", ps::Waiting::block}};
  const auto add = [&](const char* name, double p50, double p99, double seconds) {
    bare_pass();
    kinds[name] = {{"p50_us", p50}, {"p99_us", p99}, {"call_us", microseconds(seconds)}};
    fmt::print(
        "recycle {:<13} a slot is free again after {:.1f} us (median), {:.1f} us (99th "
        "percentile); "
        "the copies took {}\n",
        name, p50, p99, ps::format_seconds(seconds));
  };
  bool correct = true;
  std::uint64_t allocations = 0;
  for (const auto& [name, waiting] : all) {
    double seconds = 0;
    ps::SlotRingStatistics statistics;
    for (const bool measure : {false, true}) {  // timing events cost a little: measured apart
      ps::SlotRing ring(device,
                        {.slots = 4, .slot_bytes = bytes, .waiting = waiting, .measure = measure});
      const auto before = device.allocations();
      const double took = ps::seconds_of([&] {
        for (int i = 0; i < batches; ++i) {
          auto slot = ring.acquire();
          slot.view().as<int>()[0] = i;
          ps::copy(target.view(), slot.view(), stream);
          slot.release_after(stream);
        }
        stream.synchronize();
      });
      ps::copy(check.view(), target.view(), stream);
      stream.synchronize();
      correct = correct && check.view().as<int>()[0] == batches - 1;
      if (!measure) seconds = took;
      statistics = ring.statistics();
      allocations += device.allocations() - before;
    }
    add(name, *statistics.recycle_p50_us, *statistics.recycle_p99_us, seconds);
  }
  if (device.kind() == ps::DeviceKind::cuda) {
    const auto side = bench::recycle_by_side_stream(device, target.view(), 4, batches);
    add("side_stream", side.p50_us, side.p99_us, side.seconds);
  }
  if (!correct) throw std::runtime_error("recycle: a slot was reused too early");
  fmt::print("recycle {:<13} {}, best of {} passes\n", "copies alone",
             ps::format_seconds(bare.seconds()), bare.passes());
  results.add({{"case", "recycle"},
               {"params", {{"batches", batches}, {"slots", 4}, {"slot_bytes", bytes}}},
               {"correct", true},
               {"max_error", 0},
               {"tolerance", 0},
               {"floor_us", microseconds(bare.seconds())},
               {"ours", {{"call_us", kinds["thread_poll"]["call_us"]}}},
               {"peer", Json::object()},
               {"metrics", {{"allocations_after_warm_up", allocations}, {"kinds", kinds}}}});
}

void run(const Settings& settings) {
  const ps::Device device = ps::Device::parse(settings.device);
  ps::LimitsOptions limits = settings.quick ? ps::quick_limits() : ps::LimitsOptions{};
  limits.disk = false;
  bench::Results results("overlap", device, ps::measure_limits(device, limits));
  results.peer("plain_loop",
               device.kind() == ps::DeviceKind::cuda ? "in this repository" : "absent");
  {
    const std::size_t mib = settings.quick ? ps::KiB * 64 : ps::MiB;
    Overlap overlap(device, settings.quick, results);
    ps::OverlapOptions options{.device = device};
    options.sweep_chunks = {4 * mib, 8 * mib, 16 * mib, 32 * mib, 64 * mib};
    for (const ps::Ways ways : {ps::Ways::two, ps::Ways::three, ps::Ways::four}) {
      options.ways = ways;
      overlap.run(std::string(ps::name(ways)), options);
    }
    options.sweep_chunks.clear();
    options.ways = ps::Ways::two;
    options.compute_ratio = 0.8;
    overlap.run("two-way-0.8", options);
    options.compute_ratio = 1;
    options.ways = ps::Ways::three;
    options.chunk = settings.quick ? 4 * ps::MiB : 256 * ps::MiB;
    overlap.run("uncut", options);
    overlap.finish();
  }
  recycle(device, settings.quick, results);
  if (!settings.output.empty()) results.write(settings.output);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Overlap beside its floor and beside a loop written by hand");
  Settings settings;
  app.add_option("--output", settings.output, "Results file to write");
  app.add_option("--device", settings.device, "cpu, cuda, cuda:N or best");
  app.add_flag("--quick", settings.quick, "Small sizes, for a first look; not a measurement");
  CLI11_PARSE(app, argc, argv);
  return bench::guarded("bench_overlap", [&] { run(settings); });
}
