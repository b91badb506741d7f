// Matrix products: the ladder's last rung and its portable one, beside cuBLASLt's first choice and
// the best of its sixteen, by turns. Writes bench/results/gemm.json.
//
//   bench_gemm --output bench/results/gemm.json
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "gemm/support/matrices.h"
#include "gemm/support/rungs.h"
#include "gemm/support/tensor_ceiling.h"
#include "penstock/host/cuda.h"
#include "penstock/measure/limits.h"
#include "penstock/measure/timing.h"
#include "support/cublas_lt.h"
#include "support/guarded.h"
#include "support/interleaved.h"
#include "support/results.h"

namespace {

using bench::Json;
using bench::microseconds;

constexpr gemm::Size sizes[] = {
    {2048, 2048, 2048},  {4096, 4096, 4096}, {8192, 8192, 8192},  {16384, 16384, 16384},
    {16384, 1536, 2048}, {16384, 2048, 768}, {4096, 14336, 4096}, {8192, 8192, 1024},
};

struct Settings {
  std::string output, device = "best";
  int turns = 21;
  bool quick = false;
};

gemm::Run rung(std::string_view name) {
  for (const gemm::Product& product : gemm::products()) {
    if (product.name == name) return product.run;
  }
  throw std::runtime_error(fmt::format("no rung is called {}", name));
}

bench::Product as_product(const gemm::Problem& p) { return {p.a, p.b, p.c, p.m, p.n, p.k}; }

class Bench {
 public:
  Bench(const ps::Device& device, Settings settings)
      : settings_(std::move(settings)), stream_(device), native_(ps::cuda_stream(stream_)) {}

  const bench::CublasLt& peer() const { return peer_; }

  Json measure(const gemm::Size& size) {
    const gemm::Matrices matrices(stream_, size);
    const int algorithms = peer_.prepare(as_product(matrices.problem(0)));
    if (algorithms == 0) throw std::runtime_error("cuBLASLt offers no algorithm");
    const int best = best_of(matrices, algorithms);
    const gemm::Run ours = rung("tensor-store"), portable = rung("mma-sync");
    const double error = checked(matrices, ours);
    checked(matrices, portable);

    const std::vector<gemm::TensorRounds> ceiling = gemm::tensor_rounds(size);
    const std::vector<std::vector<double>> passes = ladder::interleaved_passes(
        stream_,
        // Each piece takes other matrices than the one before: none finds its own in the cache.
        {[&](std::size_t number) { ours(matrices.problem(number), native_); },
         [&](std::size_t number) { peer_.run(as_product(matrices.problem(number)), 0, native_); },
         [&](std::size_t number) {
           peer_.run(as_product(matrices.problem(number)), best, native_);
         },
         [&](std::size_t number) { portable(matrices.problem(number), native_); },
         [&](std::size_t) { gemm::enqueue_tensor_work(ceiling[0].rounds, native_); },
         [&](std::size_t) { gemm::enqueue_tensor_work(ceiling[1].rounds, native_); }},
        {.turns = settings_.quick ? 3 : settings_.turns, .warm_up = 3});
    std::vector<double> seconds;
    for (const std::vector<double>& each : passes) seconds.push_back(ps::median(each));
    // The floor is the tensor cores alone, by their best passes.
    const auto best_pass = [&](std::size_t i) { return std::ranges::min(passes[i]); };
    const double floor = size.flops() / gemm::tensor_ceiling(ceiling, {best_pass(4), best_pass(5)});
    const std::string name = fmt::format("{}x{}x{}", size.m, size.n, size.k);
    fmt::print(
        "{:<18} {:>7.1f} TFLOP/s, {:.3f} of cublasLt, {:.3f} of its best algorithm, mma.sync "
        "{:.3f} "
        "of cublasLt, {:.3f} of the tensor cores\n",
        name, size.flops() / seconds[0] * 1e-12, seconds[1] / seconds[0], seconds[2] / seconds[0],
        seconds[1] / seconds[3], floor / seconds[0]);
    return {{"case", name},
            {"params", {{"m", size.m}, {"n", size.n}, {"k", size.k}, {"dtype", "bf16"}}},
            {"correct", true},
            {"max_error", error},
            {"tolerance", 1},
            {"floor_us", microseconds(floor)},
            {"ours", {{"gpu_us", microseconds(seconds[0])}}},
            {"peer",
             {{"cublasLt", {{"gpu_us", microseconds(seconds[1])}}},
              {"cublasLt-best16", {{"gpu_us", microseconds(seconds[2])}}}}},
            {"metrics",
             {{"tflops", size.flops() / seconds[0] * 1e-12},
              {"of_cublasLt", seconds[1] / seconds[0]},
              {"of_best16", seconds[2] / seconds[0]},
              {"mma_sync_gpu_us", microseconds(seconds[3])},
              {"mma_sync_of_cublasLt", seconds[1] / seconds[3]},
              {"over_floor", seconds[0] / floor},
              {"of_tensor_cores", floor / seconds[0]}}}};
  }

 private:
  double checked(const gemm::Matrices& matrices, gemm::Run run) {
    matrices.poison(0);
    run(matrices.problem(0), native_);
    return matrices.check(0).largest;
  }

  // The fastest that also computes what was asked.
  int best_of(const gemm::Matrices& matrices, int algorithms) {
    std::vector<ladder::Enqueue> work;
    std::vector<int> right;
    for (int i = 0; i < algorithms; ++i) {
      try {
        matrices.poison(0);
        peer_.run(as_product(matrices.problem(0)), i, native_);
        matrices.check(0);
      } catch (const std::runtime_error& error) {
        if (i == 0) throw;
        fmt::print("cublasLt's choice {} is left out: {}\n", i, error.what());
        continue;
      }
      right.push_back(i);
      work.emplace_back([&matrices, i, this](std::size_t number) {
        peer_.run(as_product(matrices.problem(number)), i, native_);
      });
    }
    const std::vector<double> seconds = ladder::interleaved_medians(stream_, work, {.turns = 5});
    const auto best = std::min_element(seconds.begin(), seconds.end()) - seconds.begin();
    return right[static_cast<std::size_t>(best)];
  }

  Settings settings_;
  ps::Stream stream_;
  cudaStream_t native_;
  bench::CublasLt peer_;
};

void run(const Settings& settings) {
  const ps::Device device = ps::Device::parse(settings.device);
  ps::LimitsOptions limits = ps::quick_limits();
  limits.disk = false;
  bench::Results results("gemm", device, ps::measure_limits(device, limits));
  Bench bench(device, settings);
  results.peer("cublasLt", bench.peer().version());
  results.peer("cublasLt-best16", bench.peer().version());
  double logs = 0, least = 1e9;
  for (const gemm::Size& size : sizes) {
    const Json row = bench.measure(size);
    const double ratio = row["metrics"]["of_cublasLt"];
    logs += std::log(ratio);
    least = std::min(least, ratio);
    results.add(row);
  }
  fmt::print("geometric mean {:.3f} of cublasLt, least {:.3f}\n",
             std::exp(logs / static_cast<double>(std::size(sizes))), least);
  if (!settings.output.empty()) results.write(settings.output);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Matrix products beside cuBLASLt");
  Settings settings;
  app.add_option("--output", settings.output, "Results file to write");
  app.add_option("--device", settings.device, "cuda, cuda:N or best");
  app.add_option("--turns", settings.turns, "Times each is run; the median counts")
      ->check(CLI::Range(1, 1000));
  app.add_flag("--quick", settings.quick, "Few turns: a look, not a measurement");
  CLI11_PARSE(app, argc, argv);
  return bench::guarded("bench_gemm", [&] { run(settings); });
}
