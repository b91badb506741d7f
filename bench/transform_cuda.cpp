// Elementwise functions at 256 MiB of input beside CUB's DeviceTransform and cudaMemcpy moving as
// many bytes, by turns; then data that streams through the GPU, and the CPU. Writes
// bench/results/transform.json.
//
//   bench_transform --output bench/results/transform.json
//   bench_transform --only gpu --variants     every tuning of the kernels, best first
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "penstock/base/units.h"
#include "penstock/host/buffer.h"
#include "penstock/host/cuda.h"
#include "penstock/measure/limits.h"
#include "support/cub_copy.h"
#include "support/guarded.h"
#include "support/interleaved.h"
#include "support/results.h"
#include "support/transform_case.h"
#include "support/transform_host.h"

namespace {

using bench::Json;
using bench::microseconds;
using bench::TransformCase;
using bench::TransformSet;
using ps::TransformKernel;

struct Settings {
  std::string output, device = "best", directory = ".", only, named;
  int turns = 41;
  bool quick = false, variants = false;
};

// Two sets of operands: no call finds in the cache what the call before it left there.
class Sets {
 public:
  Sets(const TransformCase& of, std::size_t input_bytes, const ps::Stream& stream)
      // Multiples of 4096 elements: cudaMemcpy then has whole pages to move.
      : elements_(input_bytes / of.inputs / ps::size_of(of.in) / 4096 * 4096),
        half_(of.bytes_per_element() * elements_ / 2) {
    for (TransformSet& set : sets_) {
      const std::size_t each = elements_ * ps::size_of(of.in);
      const ps::MemoryView in = memory_.emplace_back(stream.device(), of.inputs * each).view();
      for (unsigned i = 0; i < of.inputs; ++i) set.in[i] = in.data + i * each;
      set.out = memory_.emplace_back(stream.device(), half_).view().data;
      set.elements = elements_;
      bench::fill_random(of, set, stream);
    }
    stream.synchronize();
  }

  const TransformSet& set(std::size_t turn) const { return sets_[turn % 2]; }
  std::size_t elements() const { return elements_; }
  std::size_t bytes() const { return 2 * half_; }

  // As many bytes read and written as a call does.
  void memcpy(std::size_t turn, const ps::Stream& stream) const {
    const ps::Place place = stream.device().place();
    ps::copy({static_cast<std::byte*>(set(turn).out), half_, place},
             {static_cast<std::byte*>(set(turn).in[0]), half_, place}, stream);
  }
  void poison(const ps::Stream& stream) const {
    for (const TransformSet& each : sets_) {
      ps::fill({static_cast<std::byte*>(each.out), half_, stream.device().place()}, 0xFF, stream);
    }
  }

 private:
  std::size_t elements_, half_;
  std::vector<ps::DeviceBuffer> memory_;
  TransformSet sets_[2];
};

struct Contender {
  std::string name;
  bench::EnqueueTransform enqueue;
  double seconds = 0, sustained = 0;
};

class Bench {
 public:
  Bench(const ps::Device& device, const Settings& settings)
      : settings_(settings), input_bytes_((settings.quick ? 32 : 256) * ps::MiB), stream_(device) {}

  Json measure(const TransformCase& of, double copy_rate) {
    const Sets sets(of, input_bytes_, stream_);
    std::vector<Contender> all = {ours(of, "ours", TransformKernel::best),
                                  ours(of, "portable", TransformKernel::portable),
                                  ours(of, "sm90", TransformKernel::sm90)};
    for (const auto& [name, enqueue] : of.cub) all.push_back({"cub by " + name, enqueue});
    double error = 0;
    for (const Contender& each : all) error = std::max(error, checked(of, sets, each));
    time(sets, all);

    const double memcpy = memcpy_seconds_, sustained = memcpy_sustained_;
    const auto cub = std::min_element(all.begin() + 3, all.end(),
                                      [](auto& a, auto& b) { return a.seconds < b.seconds; });
    const double seconds = all[0].seconds;
    fmt::print(
        "{:<18} {:>6.0f} GB/s  {:.3f} of cudaMemcpy  {:.3f} of {:<15}  portable {:.3f}  sm90 {:.3f}"
        "  sustained {:.3f} of cudaMemcpy\n",
        of.name, rate(sets, seconds), memcpy / seconds, cub->seconds / seconds, cub->name,
        memcpy / all[1].seconds, memcpy / all[2].seconds, sustained / all[0].sustained);
    Json metrics = {{"bytes", sets.bytes()},
                    {"GBps", rate(sets, seconds)},
                    {"of_memcpy", memcpy / seconds},
                    {"of_cub", cub->seconds / seconds},
                    {"cub_by", cub->name},
                    {"sustained_us", microseconds(all[0].sustained)},
                    {"sustained_of_memcpy", sustained / all[0].sustained},
                    {"sustained_of_cub", cub->sustained / all[0].sustained}};
    for (std::size_t i = 1; i < all.size(); ++i) {
      metrics["gpu_us"][all[i].name] = microseconds(all[i].seconds);
    }
    if (settings_.variants) metrics["variants"] = variants(of, sets);
    return {{"case", of.name},
            {"params",
             {{"elements", sets.elements()}, {"inputs", of.inputs}, {"input_bytes", input_bytes_}}},
            {"correct", true},
            {"max_error", error},
            {"tolerance", 1},
            {"yardstick_us", microseconds(static_cast<double>(sets.bytes()) / copy_rate)},
            {"yardstick", "a device copy of 1 GiB, per byte"},
            {"ours", {{"gpu_us", microseconds(seconds)}}},
            {"peer",
             {{"cub", {{"gpu_us", microseconds(cub->seconds)}}},
              {"cudaMemcpy", {{"gpu_us", microseconds(memcpy)}}}}},
            {"metrics", metrics}};
  }

 private:
  static Contender ours(const TransformCase& of, const char* name, TransformKernel kernel) {
    return {name, [&of, kernel](const TransformSet& set, const ps::Stream& stream) {
              of.ours(set, kernel, stream);
            }};
  }

  static double rate(const Sets& sets, double seconds) {
    return static_cast<double>(sets.bytes()) / seconds * 1e-9;
  }

  double checked(const TransformCase& of, const Sets& sets, const Contender& each) const {
    sets.poison(stream_);
    each.enqueue(sets.set(0), stream_);
    const double error = of.error(sets.set(0), stream_);
    if (!(error <= 1)) {
      throw std::runtime_error(
          fmt::format("{}: {} is off by {} times what rounding allows", of.name, each.name, error));
    }
    return error;
  }

  // All by turns with cudaMemcpy: each call alone, and among many without a gap.
  void time(const Sets& sets, std::vector<Contender>& all) {
    const int queued = settings_.quick ? 3 : 10;
    const auto measure = [&](int times, int turns) {
      std::vector<ladder::Enqueue> work;
      for (std::size_t i = 0; i <= all.size(); ++i) {
        work.emplace_back([&, i, times](std::size_t number) {
          for (int k = 0; k < times; ++k) {
            const std::size_t which = number + static_cast<std::size_t>(k);
            if (i < all.size()) {
              all[i].enqueue(sets.set(which), stream_);
            } else {
              sets.memcpy(which, stream_);
            }
          }
        });
      }
      return ladder::interleaved_medians(stream_, work, {.turns = turns, .warm_up = 3});
    };
    const std::vector<double> alone = measure(1, settings_.quick ? 3 : settings_.turns);
    const std::vector<double> sustained = measure(queued, settings_.quick ? 3 : 9);
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i].seconds = alone[i];
      all[i].sustained = sustained[i] / queued;
    }
    memcpy_seconds_ = alone.back();
    memcpy_sustained_ = sustained.back() / queued;
  }

  Json variants(const TransformCase& of, const Sets& sets) {
    std::vector<Contender> all;
    for (const auto& [name, enqueue] : of.variants) {
      checked(of, sets, all.emplace_back(Contender{name, enqueue}));
    }
    time(sets, all);
    std::ranges::sort(all, {}, &Contender::seconds);
    Json table = Json::object();
    for (const Contender& each : all) {
      const double share = memcpy_seconds_ / each.seconds;
      fmt::print("    {:<28} {:>6.0f} GB/s  {:.3f} of cudaMemcpy  sustained {:.3f}\n", each.name,
                 rate(sets, each.seconds), share, memcpy_sustained_ / each.sustained);
      table[each.name] = {{"gpu_us", microseconds(each.seconds)}, {"of_memcpy", share}};
    }
    return table;
  }

  Settings settings_;
  std::size_t input_bytes_;
  ps::Stream stream_;
  double memcpy_seconds_ = 0, memcpy_sustained_ = 0;
};

void gpu_cases(const ps::Device& device, const Settings& settings, const ps::Limits& limits,
               bench::Results& results) {
  const ps::Rate* copy = limits.find(ps::Ceiling::device_copy);
  if (copy == nullptr) throw std::runtime_error("the device's copy rate was not measured");
  Bench bench(device, settings);
  results.peer("cub", bench::cub_version());
  results.peer("cudaMemcpy", "the driver's");
  double of_cub = 0, of_memcpy = 0, least = 1e9;
  int count = 0;
  for (const TransformCase& each : bench::transform_cases()) {
    if (!settings.named.empty() && each.name.find(settings.named) == std::string::npos) continue;
    const Json row = bench.measure(each, copy->bytes_per_second);
    const double share = row["metrics"]["of_memcpy"];
    of_cub += std::log(row["metrics"]["of_cub"].get<double>());
    of_memcpy += std::log(share);
    least = std::min(least, share);
    ++count;
    results.add(row);
  }
  if (count == 0) throw std::runtime_error("no case is named " + settings.named);
  fmt::print("geometric mean {:.3f} of cub, {:.3f} of cudaMemcpy, least {:.3f}\n",
             std::exp(of_cub / count), std::exp(of_memcpy / count), least);
}

void run(const Settings& settings) {
  const ps::Device device = ps::Device::parse(settings.device);
  const bool gpu = device.kind() == ps::DeviceKind::cuda;
  if (!gpu && settings.only == "gpu") throw std::runtime_error("there is no GPU");
  ps::LimitsOptions limit_options = settings.quick ? ps::quick_limits() : ps::LimitsOptions{};
  limit_options.disk = false;
  const ps::Limits limits = ps::measure_limits(device, limit_options);
  bench::Results results("transform", device, limits);
  const auto wanted = [&](const char* part) {
    return settings.only.empty() || settings.only == part;
  };
  if (gpu && wanted("gpu")) gpu_cases(device, settings, limits, results);
  const bool quick = settings.quick;
  const ps::Rate* host_copy = limits.find(ps::Ceiling::host_copy);
  const bench::TransformHostOptions host{
      .device = device,
      .bytes = (quick ? 256 : 4096) * ps::MiB,
      .file_bytes = (quick ? 128 : 4096) * ps::MiB,
      .cpu_bytes = (quick ? 64 : 256) * ps::MiB,
      .host_copy = host_copy != nullptr ? host_copy->bytes_per_second : 0,
      .device_bytes = 2 * ps::GiB,
      .directory = settings.directory,
      .turns = quick ? 1 : 5};
  if (wanted("stream")) bench::streamed_cases(host, results);
  if (wanted("cpu")) bench::cpu_cases(host, results);
  if (!settings.output.empty()) results.write(settings.output);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Elementwise functions beside CUB and cudaMemcpy");
  Settings settings;
  app.add_option("--output", settings.output, "Results file to write");
  app.add_option("--device", settings.device, "cuda, cuda:N or best");
  app.add_option("--directory", settings.directory, "Where the files of the streaming cases are");
  app.add_option("--only", settings.only, "One part alone")
      ->check(CLI::IsMember({"gpu", "stream", "cpu"}));
  app.add_option("--case", settings.named, "Only GPU cases whose name contains this");
  app.add_option("--turns", settings.turns, "Times each call is timed; the median counts")
      ->check(CLI::Range(1, 1000));
  app.add_flag("--variants", settings.variants, "Every tuning of the kernels too");
  app.add_flag("--quick", settings.quick, "Small sizes, for a first look; not a measurement");
  CLI11_PARSE(app, argc, argv);
  return bench::guarded("bench_transform", [&] { run(settings); });
}
