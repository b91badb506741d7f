// How well a kernel with roles overlaps its copies with its arithmetic: whole, beside its copies
// alone and its arithmetic alone, which are the same kernel with the other side compiled out, and
// beside the best kernel that has no roles and many warps. Writes
// bench/results/overlap-kernel.json.
//
//   bench_overlap-kernel --output bench/results/overlap-kernel.json
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "copy/support/checks.h"
#include "copy/support/problem.h"
#include "copy/support/rung.h"
#include "copy/support/sides.h"
#include "penstock/base/error.h"
#include "penstock/base/units.h"
#include "penstock/measure/limits.h"
#include "support/guarded.h"
#include "support/interleaved.h"
#include "support/results.h"

namespace {

using bench::Json;
using bench::microseconds;
using ladder::copy::Formula;
using ladder::copy::Intensity;
using ladder::copy::Kernel;
using ladder::copy::Problem;
using ladder::copy::Sides;

struct Settings {
  std::string output;
  std::string device = "best";
  std::size_t bytes = 0;
  bool quick = false;
};

// Seconds of one way to build the kernel, and of what stands beside it.
struct Times {
  double both = 0, copy = 0, compute = 0;
  double larger() const { return std::max(copy, compute); }
};
struct Beside {
  double memcpy = 0;         // the copy ceiling
  double multiply_adds = 0;  // seconds that they need at the peak
  double synchronous = 0;
  std::string synchronous_label = {};
};

// The kernels without roles, which overlap by having many warps.
std::vector<Kernel> synchronous_kernels() {
  constexpr std::array<std::string_view, 4> rungs{"synchronous", "coalesced", "registers",
                                                  "vectorised"};
  std::vector<Kernel> all;
  for (const ladder::copy::RungKernels& rung : ladder::copy::all_kernels()) {
    if (std::ranges::find(rungs, rung.rung) == rungs.end()) continue;
    for (Kernel& kernel : rung.kernels()) {
      kernel.label = fmt::format("{}: {}", rung.rung, kernel.label);
      all.push_back(std::move(kernel));
    }
  }
  return all;
}

Json case_of(const std::string& name, const std::string& built, const Times& times,
             const Beside& beside, std::size_t bytes, int rounds) {
  return {
      {"case", name},
      {"params", {{"bytes", bytes}, {"multiply_adds", rounds}, {"kernel", built}}},
      {"correct", true},
      {"max_error", 0},
      {"tolerance", 0},
      {"floor_us", microseconds(times.larger())},
      {"ours", {{"gpu_us", microseconds(times.both)}}},
      {"peer", {{"synchronous", {{"gpu_us", microseconds(beside.synchronous)}}}}},
      {"metrics",
       {{"copy_alone_us", microseconds(times.copy)},
        {"compute_alone_us", microseconds(times.compute)},
        {"over_larger", times.both / times.larger()},
        {"hidden", (times.copy + times.compute - times.both) / std::min(times.copy, times.compute)},
        {"copy_of_cudaMemcpy", beside.memcpy / times.copy},
        {"compute_of_peak", beside.multiply_adds / times.compute},
        {"synchronous_kernel", beside.synchronous_label},
        {"of_synchronous", beside.synchronous / times.both}}}};
}

class Benchmark {
 public:
  Benchmark(Problem& problem, std::size_t bytes, bench::Results& results)
      : problem_(problem), bytes_(bytes), results_(results) {}

  // Times all ways to build the kernel at once; returns the index of the fastest.
  std::size_t run(const std::string& name, const std::vector<Sides>& sides, int rounds) {
    const std::vector<Kernel> synchronous = synchronous_kernels();
    std::vector<ladder::Enqueue> work{problem_.memcpy()};
    for (const Kernel& kernel : synchronous) {
      problem_.check(kernel, rounds);
      work.push_back(problem_.run(kernel, rounds));
    }
    for (const Sides& one : sides) {
      problem_.check(one.both, rounds);
      problem_.check(one.copy, 0);  // without its arithmetic it is a copy
      for (const Kernel* kernel : {&one.both, &one.copy, &one.compute}) {
        work.push_back(problem_.run(*kernel, rounds));
      }
    }
    const double peak_before = peak();
    const std::vector<double> seconds = ladder::interleaved_medians(
        problem_.stream(), work, {.turns = problem_.turns(), .warm_up = 2});
    const double most = static_cast<double>(problem_.count()) * rounds;

    const auto first = seconds.begin() + 1;
    const auto last = first + static_cast<std::ptrdiff_t>(synchronous.size());
    const auto fastest = std::min_element(first, last);
    const Beside beside{
        .memcpy = seconds[0],
        .multiply_adds = most / std::max(peak_before, peak()),
        .synchronous = *fastest,
        .synchronous_label = synchronous[static_cast<std::size_t>(fastest - first)].label};
    std::vector<Times> times;
    for (auto at = last; at != seconds.end(); at += 3) times.push_back({at[0], at[1], at[2]});
    const auto best =
        static_cast<std::size_t>(std::ranges::min_element(times, {}, &Times::both) - times.begin());
    if (sides.size() > 1) add(name + ", best", sides[best].name, times[best], beside, rounds);
    for (std::size_t i = 0; i < sides.size(); ++i) {
      add(fmt::format("{}, {}", name, sides[i].name), sides[i].name, times[i], beside, rounds);
    }
    return best;
  }

 private:
  double peak() const {
    return ladder::copy::multiply_adds_per_second(problem_.stream(), problem_.turns());
  }

  void add(const std::string& name, const std::string& built, const Times& times,
           const Beside& beside, int rounds) {
    results_.add(case_of(name, built, times, beside, bytes_, rounds));
    fmt::print(
        "{:<44} both {:>9}  copy {:>9} ({:.3f} of cudaMemcpy)  compute {:>9} ({:.3f} of peak)  "
        "x larger {:.4f}  synchronous {}\n",
        name, ps::format_seconds(times.both), ps::format_seconds(times.copy),
        beside.memcpy / times.copy, ps::format_seconds(times.compute),
        beside.multiply_adds / times.compute, times.both / times.larger(),
        ps::format_seconds(beside.synchronous));
  }

  Problem& problem_;
  std::size_t bytes_;
  bench::Results& results_;
};

void run(const Settings& settings) {
  const ps::Device device = ps::Device::parse(settings.device);
  if (device.kind() != ps::DeviceKind::cuda) {
    throw ps::Unsupported("kernels with roles need a GPU: " + ps::Device::why_no_gpu());
  }
  const std::vector<Sides> sides = ladder::copy::role_sides();
  if (const std::string why = why_not(sides.front().both, device); !why.empty()) {
    throw ps::Unsupported("kernels with roles on " + device.name() + ": " + why);
  }
  ps::LimitsOptions limits = settings.quick ? ps::quick_limits() : ps::LimitsOptions{};
  limits.disk = limits.host = false;
  bench::Results results("overlap-kernel", device, ps::measure_limits(device, limits));
  results.peer("synchronous", "in this repository");

  const std::size_t bytes =
      settings.bytes > 0 ? settings.bytes : (settings.quick ? 64 * ps::MiB : 2 * ps::GiB);
  ladder::Context context({.device = device, .bytes = bytes, .quick = settings.quick});
  Problem problem(context);
  Benchmark benchmark(problem, bytes, results);
  const int balanced = problem.rounds(Intensity::balanced);
  const std::size_t best = benchmark.run("balanced", sides, balanced);
  benchmark.run("half the arithmetic", {sides[best]}, balanced / 2);
  benchmark.run("twice the arithmetic", {sides[best]}, balanced * 2);
  if (!settings.output.empty()) results.write(settings.output);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("A kernel with roles: whole, its copies alone, its arithmetic alone");
  Settings settings;
  std::string bytes;
  app.add_option("--output", settings.output, "Results file to write");
  app.add_option("--device", settings.device, "cuda, cuda:N or best");
  app.add_option("--bytes", bytes, "Bytes of input; default: 2GiB");
  app.add_flag("--quick", settings.quick, "Small sizes, for a first look; not a measurement");
  CLI11_PARSE(app, argc, argv);
  return bench::guarded("bench_overlap-kernel", [&] {
    if (!bytes.empty()) settings.bytes = ps::parse_bytes(bytes, "--bytes");
    run(settings);
  });
}
