// How well a kernel with roles overlaps its copies with its arithmetic: whole, beside its copies
// alone and its arithmetic alone, which are the same kernel with the other side compiled out, and
// beside the best kernel that has no roles and many warps. Every way to build the kernel is run
// with three amounts of arithmetic, all in one interleaved measurement, so that its copies alone
// are measured once. The floor is the best pass of either side alone. Writes
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
#include <utility>
#include <vector>

#include "copy/support/checks.h"
#include "copy/support/problem.h"
#include "copy/support/rung.h"
#include "copy/support/sides.h"
#include "penstock/base/error.h"
#include "penstock/base/units.h"
#include "penstock/measure/floor.h"
#include "penstock/measure/limits.h"
#include "penstock/measure/timing.h"
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

// All passes of one piece of work.
class Passes {
 public:
  explicit Passes(std::vector<double> seconds) : median_(ps::median(seconds)) {
    for (const double each : seconds) floor_.add(each);
    longest_ = std::ranges::max(seconds);
  }
  double median() const { return median_; }
  double best() const { return floor_.seconds(); }
  double longest() const { return longest_; }

 private:
  double median_, longest_ = 0;
  ps::Floor floor_;
};

// One way to build the kernel with one amount of arithmetic, in seconds, and what stands beside it.
struct Times {
  double both = 0;                           // the median
  double copy = 0, compute = 0;              // the best pass of each side alone
  double copy_median = 0, copy_longest = 0;  // show how steady it was
  double larger() const { return std::max(copy, compute); }
};
struct Beside {
  double memcpy = 0;         // the best pass
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
        {"copy_alone_median_us", microseconds(times.copy_median)},
        {"copy_alone_longest_us", microseconds(times.copy_longest)},
        {"compute_alone_us", microseconds(times.compute)},
        {"over_larger", times.both / times.larger()},
        {"hidden", (times.copy + times.compute - times.both) / std::min(times.copy, times.compute)},
        {"copy_of_cudaMemcpy", beside.memcpy / times.copy},
        {"compute_of_peak", beside.multiply_adds / times.compute},
        {"synchronous_kernel", beside.synchronous_label},
        {"of_synchronous", beside.synchronous / times.both}}}};
}

struct Work {
  std::string name;
  int rounds = 0;  // multiply-adds per element
};

class Benchmark {
 public:
  Benchmark(Problem& problem, std::size_t bytes, bench::Results& results)
      : problem_(problem), bytes_(bytes), results_(results) {}

  // One measurement of everything. All ways to build the kernel become rows of the first work, and
  // the fastest of them of the others, too.
  void run(const std::vector<Sides>& sides, const std::vector<Work>& works) {
    const std::size_t memcpy = add(problem_.memcpy());
    std::vector<std::size_t> copies;
    for (const Sides& one : sides) {
      problem_.check(one.copy, 0);  // without its arithmetic it is a copy
      copies.push_back(add(problem_.run(one.copy, works.front().rounds)));
    }
    const std::vector<Kernel> synchronous = synchronous_kernels();
    std::vector<Pieces> pieces;
    for (const Work& work : works) pieces.push_back(add_work(sides, synchronous, work.rounds));
    const double peak_before = peak();
    measure();
    const double multiply_adds_per_second = std::max(peak_before, peak());

    std::size_t best = 0;
    for (std::size_t w = 0; w < works.size(); ++w) {
      const auto beside = beside_of(
          pieces[w], memcpy, synchronous,
          static_cast<double>(problem_.count()) * works[w].rounds / multiply_adds_per_second);
      std::vector<Times> times;
      for (std::size_t i = 0; i < sides.size(); ++i) {
        const Passes& copy = passes_[copies[i]];
        times.push_back({.both = passes_[pieces[w].both[i]].median(),
                         .copy = copy.best(),
                         .compute = passes_[pieces[w].compute[i]].best(),
                         .copy_median = copy.median(),
                         .copy_longest = copy.longest()});
      }
      if (w == 0) {
        best = static_cast<std::size_t>(std::ranges::min_element(times, {}, &Times::both) -
                                        times.begin());
        if (sides.size() > 1) report(works[w], ", best", sides[best], times[best], beside);
      }
      for (std::size_t i = 0; i < sides.size(); ++i) {
        if (w > 0 && i != best) continue;
        report(works[w], ", " + sides[i].name, sides[i], times[i], beside);
      }
    }
  }

 private:
  // Where the pieces of one amount of arithmetic are.
  struct Pieces {
    std::vector<std::size_t> synchronous, both, compute;
  };

  std::size_t add(ladder::Enqueue piece) {
    work_.push_back(std::move(piece));
    return work_.size() - 1;
  }

  Pieces add_work(const std::vector<Sides>& sides, const std::vector<Kernel>& synchronous,
                  int rounds) {
    Pieces pieces;
    for (const Kernel& kernel : synchronous) {
      problem_.check(kernel, rounds);
      pieces.synchronous.push_back(add(problem_.run(kernel, rounds)));
    }
    for (const Sides& one : sides) {
      problem_.check(one.both, rounds);
      pieces.both.push_back(add(problem_.run(one.both, rounds)));
      pieces.compute.push_back(add(problem_.run(one.compute, rounds)));
    }
    return pieces;
  }

  void measure() {
    for (std::vector<double>& seconds : ladder::interleaved_passes(
             problem_.stream(), work_, {.turns = problem_.turns(), .warm_up = 2})) {
      passes_.emplace_back(std::move(seconds));
    }
  }

  Beside beside_of(const Pieces& pieces, std::size_t memcpy, const std::vector<Kernel>& synchronous,
                   double multiply_adds) const {
    const auto fastest = std::ranges::min_element(
        pieces.synchronous, {}, [&](std::size_t i) { return passes_[i].median(); });
    const auto which = static_cast<std::size_t>(fastest - pieces.synchronous.begin());
    return {.memcpy = passes_[memcpy].best(),
            .multiply_adds = multiply_adds,
            .synchronous = passes_[*fastest].median(),
            .synchronous_label = synchronous[which].label};
  }

  double peak() const {
    return ladder::copy::multiply_adds_per_second(problem_.stream(), problem_.turns());
  }

  void report(const Work& work, const std::string& suffix, const Sides& side, const Times& times,
              const Beside& beside) {
    const std::string name = work.name + suffix;
    if (!results_.add(case_of(name, side.name, times, beside, bytes_, work.rounds))) return;
    fmt::print(
        "{}: {}, {:.4f} x its floor; copies alone {} ({:.3f} of cudaMemcpy, at most {}), "
        "arithmetic alone {} ({:.3f} of its peak), without roles {}\n",
        name, ps::format_seconds(times.both), times.both / times.larger(),
        ps::format_seconds(times.copy), beside.memcpy / times.copy,
        ps::format_seconds(times.copy_longest), ps::format_seconds(times.compute),
        beside.multiply_adds / times.compute, ps::format_seconds(beside.synchronous));
  }

  Problem& problem_;
  std::size_t bytes_;
  bench::Results& results_;
  std::vector<ladder::Enqueue> work_;
  std::vector<Passes> passes_;
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
  benchmark.run(sides, {{"balanced", balanced},
                        {"half the arithmetic", balanced / 2},
                        {"twice the arithmetic", balanced * 2}});
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
