// The copy ladder's kernels as plain copies, beside cudaMemcpy and CUB's DeviceTransform, which all
// take turns. Writes bench/results/copy.json.
//
//   bench_copy --output bench/results/copy.json
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

#include "copy/support/checks.h"
#include "copy/support/problem.h"
#include "copy/support/rung.h"
#include "penstock/base/error.h"
#include "penstock/base/units.h"
#include "penstock/host/cuda.h"
#include "penstock/measure/limits.h"
#include "support/cub_copy.h"
#include "support/guarded.h"
#include "support/interleaved.h"
#include "support/results.h"

namespace {

using bench::Json;
using bench::microseconds;
using ladder::copy::Formula;
using ladder::copy::Kernel;
using ladder::copy::Problem;

struct Settings {
  std::string output;
  std::string device = "best";
  bool quick = false;
};

struct Contender {
  std::string rung;
  Kernel kernel;
  double seconds = 0;
};

// Everything that copies, which is everything but the rungs on coefficients and stencils.
std::vector<Contender> contenders(const ps::Device& device) {
  std::vector<Contender> all;
  for (const ladder::copy::RungKernels& rung : ladder::copy::all_kernels()) {
    for (const Kernel& kernel : rung.kernels()) {
      const bool copies =
          std::ranges::find(kernel.at, ladder::copy::Intensity::copy_bound) != kernel.at.end();
      if (kernel.formula == Formula::plain && copies && why_not(kernel, device).empty()) {
        all.push_back({.rung = std::string(rung.rung), .kernel = kernel});
      }
    }
  }
  return all;
}

// CUB by floats and by vectors: the peer is the faster of the two.
ladder::Enqueue cub(const Problem& problem, bool vectors) {
  return [&problem, vectors](std::size_t turn) {
    const ladder::copy::Options options = problem.options(Formula::plain, 0, turn);
    bench::cub_copy(static_cast<const float*>(options.in.data()),
                    static_cast<float*>(options.out.data()), problem.count(), vectors,
                    ps::cuda_stream(problem.stream()));
  };
}

struct Peers {
  double memcpy = 0, cub = 0;
};

Json case_of(const std::string& name, const Contender& ours, const Peers& peers,
             std::size_t bytes) {
  const double rate = 2.0 * static_cast<double>(bytes) / ours.seconds;
  return {{"case", name},
          {"params", {{"bytes", bytes}, {"rung", ours.rung}, {"kernel", ours.kernel.label}}},
          {"correct", true},
          {"max_error", 0},
          {"tolerance", 0},
          {"ours", {{"gpu_us", microseconds(ours.seconds)}}},
          {"peer",
           {{"cudaMemcpy", {{"gpu_us", microseconds(peers.memcpy)}}},
            {"cub", {{"gpu_us", microseconds(peers.cub)}}}}},
          {"metrics",
           {{"TBps", rate * 1e-12},
            {"of_cudaMemcpy", peers.memcpy / ours.seconds},
            {"of_cub", peers.cub / ours.seconds}}}};
}

void print_line(const std::string& name, const Contender& ours, const Peers& peers) {
  fmt::print("{:<56} {:>10}  of cudaMemcpy {:.4f}  of cub {:.4f}\n", name,
             ps::format_seconds(ours.seconds), peers.memcpy / ours.seconds,
             peers.cub / ours.seconds);
}

void run_size(const ps::Device& device, std::size_t bytes, bool quick, bench::Results& results) {
  ladder::Context context({.device = device, .bytes = bytes, .quick = quick});
  Problem problem(context);
  std::vector<Contender> all = contenders(device);
  for (const Contender& one : all) problem.check(one.kernel, 0);

  std::vector<ladder::Enqueue> work{problem.memcpy(), cub(problem, false), cub(problem, true)};
  for (const Contender& one : all) work.push_back(problem.run(one.kernel, 0));
  std::vector<double> seconds =
      ladder::interleaved_medians(problem.stream(), work, {.turns = problem.turns(), .warm_up = 2});
  const bool vectors = seconds[2] < seconds[1];
  const Peers peers{.memcpy = seconds[0], .cub = std::min(seconds[1], seconds[2])};
  for (std::size_t i = 0; i < all.size(); ++i) all[i].seconds = seconds[3 + i];

  // The three best once more, beside their peers alone: being the best of many is partly luck.
  std::vector<Contender> finalists(3);
  std::ranges::partial_sort_copy(all, finalists, {}, &Contender::seconds, &Contender::seconds);
  work = {problem.memcpy(), cub(problem, vectors)};
  for (const Contender& one : finalists) work.push_back(problem.run(one.kernel, 0));
  seconds = ladder::interleaved_medians(problem.stream(), work,
                                        {.turns = 3 * problem.turns(), .warm_up = 2});
  for (std::size_t i = 0; i < finalists.size(); ++i) finalists[i].seconds = seconds[2 + i];
  const Contender best = *std::ranges::min_element(finalists, {}, &Contender::seconds);
  const std::string size = ps::format_bytes(bytes);
  const auto add = [&](const std::string& name, const Contender& ours, const Peers& beside) {
    results.add(case_of(name, ours, beside, bytes));
    print_line(name, ours, beside);
  };
  add(fmt::format("{}, best", size), best, {.memcpy = seconds[0], .cub = seconds[1]});
  for (const Contender& one : all) {
    add(fmt::format("{}, {}: {}", size, one.rung, one.kernel.label), one, peers);
  }
}

void run(const Settings& settings) {
  const ps::Device device = ps::Device::parse(settings.device);
  if (device.kind() != ps::DeviceKind::cuda) {
    throw ps::Unsupported("the copy ladder needs a GPU: " + ps::Device::why_no_gpu());
  }
  ps::LimitsOptions limits = settings.quick ? ps::quick_limits() : ps::LimitsOptions{};
  limits.disk = limits.host = false;
  bench::Results results("copy", device, ps::measure_limits(device, limits));
  results.peer("cudaMemcpy", "the driver's");
  results.peer("cub", bench::cub_version());
  const std::vector<std::size_t> sizes =
      settings.quick ? std::vector{64 * ps::MiB} : std::vector{1 * ps::GiB, 4 * ps::GiB};
  for (const std::size_t bytes : sizes) run_size(device, bytes, settings.quick, results);
  if (!settings.output.empty()) results.write(settings.output);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("The copy ladder's kernels as copies, beside cudaMemcpy and CUB");
  Settings settings;
  app.add_option("--output", settings.output, "Results file to write");
  app.add_option("--device", settings.device, "cuda, cuda:N or best");
  app.add_flag("--quick", settings.quick, "Small sizes, for a first look; not a measurement");
  CLI11_PARSE(app, argc, argv);
  return bench::guarded("bench_copy", [&] { run(settings); });
}
