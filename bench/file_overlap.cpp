// A file read past the page cache while the CPU computes on what has arrived, compute balanced to
// the disk. Writes bench/results/file_overlap.json.
//
//   bench_file_overlap --cores 2 --dir /data --output bench/results/file_overlap.json
#include <fmt/format.h>
#include <sched.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <string>

#include "penstock/base/error.h"
#include "penstock/base/units.h"
#include "penstock/measure/file_overlap.h"
#include "penstock/measure/limits.h"
#include "support/guarded.h"
#include "support/results.h"

namespace {

using bench::Json;
using bench::microseconds;

struct Settings {
  std::string output;
  int cores = 2;
  ps::FileOverlapOptions work{.bytes = 512 * ps::MiB, .repeats = 11};
};

// From here on this process has the first `count` of its cores; says how many it got.
int use_cores(int count) {
  cpu_set_t all, some;
  CPU_ZERO(&some);
  if (sched_getaffinity(0, sizeof(all), &all) != 0) {
    throw ps::SystemError(errno, "ask for", "the cores of this process");
  }
  for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&some) < count; ++core) {
    if (CPU_ISSET(core, &all)) CPU_SET(core, &some);
  }
  if (sched_setaffinity(0, sizeof(some), &some) != 0) {
    throw ps::SystemError(errno, "set", "the cores of this process");
  }
  return CPU_COUNT(&some);
}

void run(const Settings& settings) {
  const int cores = use_cores(settings.cores);
  const auto r = ps::measure_file_overlap(settings.work);
  ps::LimitsOptions limits = ps::quick_limits();
  limits.directory = settings.work.directory;
  bench::Results results("file_overlap", ps::Device::cpu(),
                         ps::measure_limits(ps::Device::cpu(), limits));
  results.add({{"case", "file-to-compute"},
               {"params",
                {{"bytes", r->bytes},
                 {"chunk", r->chunk},
                 {"chunks", r->chunks},
                 {"depth", r->depth},
                 {"rounds", r->rounds},
                 {"direct", r->direct},
                 {"cores", cores}}},
               {"correct", true},
               {"max_error", 0},
               {"tolerance", 0},
               {"floor_us", microseconds(r->times.floor)},
               {"ours", {{"call_us", microseconds(r->times.pipelined)}}},
               {"peer", Json::object()},
               {"metrics",
                {{"sequential_us", microseconds(r->times.sequential)},
                 {"read_alone_us", microseconds(r->read_alone.seconds())},
                 {"compute_alone_us", microseconds(r->compute_alone.seconds())},
                 {"hidden", r->figures.hidden ? Json(*r->figures.hidden) : Json(nullptr)},
                 {"efficiency", r->figures.efficiency},
                 {"over_floor", r->verdict.over_floor},
                 {"tries", r->tries}}}});
  fmt::print(
      "{} chunks, {} cores, {}: read alone {}, compute alone {} (best passes), pipelined {}, "
      "{:.3f} "
      "x its floor, hidden {} {}\n",
      r->chunks, cores, r->direct ? "past the page cache" : "through the page cache",
      ps::format_seconds(r->read_alone.seconds()), ps::format_seconds(r->compute_alone.seconds()),
      ps::format_seconds(r->times.pipelined), r->verdict.over_floor,
      r->figures.hidden ? fmt::format("{:.3f}", *r->figures.hidden) : "-", r->figures.note);
  if (!settings.output.empty()) results.write(settings.output);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("A file read while the CPU computes on what has arrived");
  Settings settings;
  app.add_option("--output", settings.output, "Results file to write");
  app.add_option("--dir", settings.work.directory, "Directory of the disk to read from")
      ->check(CLI::ExistingDirectory);
  app.add_option("--depth", settings.work.depth, "Slots of the ring")->check(CLI::Range(1, 1024));
  app.add_option("--cores", settings.cores, "Cores to use")->check(CLI::Range(1, CPU_SETSIZE));
  CLI11_PARSE(app, argc, argv);
  return bench::guarded("bench_file_overlap", [&] { run(settings); });
}
