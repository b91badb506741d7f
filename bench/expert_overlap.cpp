// Loading and computing experts: sequentially, in a pipeline and by StreamedExperts, beside the
// slowest engine alone. Large experts, whose loading takes longer than computing them; so many
// tokens that both take as long; f32; and experts on a disk, which is measured by bare reads of the
// same file. On the CPU device only the disk has anything to load. Writes
// bench/results/expert_overlap.json.
//
//   bench_expert_overlap --output bench/results/expert_overlap.json --directory /fast_disk
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/base/units.h"
#include "penstock/host/buffer.h"
#include "penstock/measure/experts.h"
#include "penstock/measure/floor.h"
#include "penstock/measure/limits.h"
#include "penstock/measure/timing.h"
#include "support/bare_read.h"
#include "support/guarded.h"
#include "support/results.h"

namespace {

using bench::Json;
using bench::microseconds;

struct Settings {
  std::string output, device = "best", only, directory = ".";
  bool quick = false;
  int turns = 5;
};

struct Case {
  std::string name;
  ps::ExpertOverlapOptions options;
  bool streamed = false;  // judge StreamedExperts instead of the pipeline
};

Case make(std::string name, ps::ExpertShape shape, std::int64_t batch, std::int64_t sequence,
          std::int64_t distinct = 0) {
  return {.name = std::move(name),
          .options = {.shape = shape,
                      .choices = std::min<std::int64_t>(8, shape.experts / 4),
                      .batch = batch,
                      .sequence = sequence,
                      .distinct = distinct}};
}

std::vector<Case> cases(bool quick) {
  const std::int64_t part = quick ? 16 : 1;  // of the sizes
  const auto shape = [&](std::int64_t experts, std::int64_t hidden, std::int64_t width) {
    return ps::ExpertShape{
        .layers = 1, .experts = experts, .hidden = hidden / part, .width = width / part};
  };
  std::vector<Case> all;
  all.push_back(make("large experts", shape(256, 7168, 14336), 32, 512 / part, 64));
  all.push_back(make("large experts, balanced", shape(32, 7168, 14336), 96, 512 / part));
  ps::ExpertShape f32 = shape(16, 4096, 14336);
  f32.dtype = ps::DType::f32;
  all.push_back(make("f32", f32, 8, 512 / part));
  ps::ExpertShape small = shape(128, 2048, 768);
  small.layers = 4;
  all.push_back(make("prefill", small, 1, 4096 / part));
  all.push_back(make("prefill from a disk", small, 1, 4096 / part));
  all.back().options.from = ps::ExpertsFrom::disk;
  all.back().options.depth = 8;
  all.back().streamed = true;
  return all;
}

// The disk alone: the file of packed experts, read by system calls and nothing else. One of the
// ways is timed whenever the measurement times its own reads, so that both see the same disk.
class BareDisk {
 public:
  explicit BareDisk(const std::filesystem::path& file)
      : bytes_(std::filesystem::file_size(file) / piece * piece),
        fd_(open(file.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC)),
        memory_(ps::Device::cpu(), most_in_flight * piece) {
    if (fd_ < 0) throw ps::SystemError(errno, "open for direct reads", file.string());
  }
  ~BareDisk() { close(fd_); }
  BareDisk(const BareDisk&) = delete;
  BareDisk& operator=(const BareDisk&) = delete;

  void pass() {
    for (const std::size_t in_flight : {std::size_t{8}, most_in_flight}) {
      const bench::BareRead work{fd_, bytes_, piece, in_flight, memory_.view().data};
      floor_.time([&] { bench::read_by_threads(work); });
      bool has_uring = true;
      const double seconds = ps::seconds_of([&] { has_uring = bench::read_by_uring(work); });
      if (has_uring) floor_.add(seconds);
    }
  }

  // The time of so many bytes at the best rate.
  double seconds(std::uint64_t bytes) const {
    return floor_.seconds() * static_cast<double>(bytes) / static_cast<double>(bytes_);
  }

 private:
  static constexpr std::size_t piece = 4 * ps::MiB;
  static constexpr std::size_t most_in_flight = 32;
  std::size_t bytes_;  // whole pieces
  int fd_;
  ps::PinnedBuffer memory_;
  ps::Floor floor_;
};

void measure(const Settings& settings, const ps::Device& device, Case each,
             bench::Results& results) {
  std::optional<BareDisk> disk;
  if (each.options.from == ps::ExpertsFrom::disk) {
    each.options.packed = [&](const std::filesystem::path& file) { disk.emplace(file); };
    each.options.timer = [&](std::string_view what, const std::function<void()>& run) {
      if (what == "read alone") disk->pass();
      return ps::seconds_of(run);
    };
  }
  each.options.device = device;
  each.options.directory = settings.directory;
  each.options.repeats = settings.turns;
  each.options.tracing = ps::Tracing::none;
  const auto r = ps::measure_expert_overlap(each.options);
  if (each.streamed && !r->streamed_seconds) throw std::runtime_error(r->why_not_streamed);
  const double seconds = each.streamed ? *r->streamed_seconds : r->pipelined.seconds;
  double floor = r->compute_alone.seconds();
  if (r->upload_alone.passes() > 0) floor = std::max(floor, r->upload_alone.seconds());
  if (r->read_alone.passes() > 0) {
    // Our own reads cannot beat the disk, but the bare ones need not be its best.
    const double own = r->read_alone.seconds();
    floor = std::max(floor, disk ? std::min(own, disk->seconds(r->bytes)) : own);
  }
  const ps::ExpertShape& shape = r->shape;
  fmt::print("{:<24} {:>10}, {:.3f} x its floor of {:>10}, {:.2f} x as fast as sequentially\n",
             each.name, ps::format_seconds(seconds), seconds / floor, ps::format_seconds(floor),
             r->times.sequential / seconds);
  Json metrics{{"efficiency", floor / seconds},
               {"speedup", r->times.sequential / seconds},
               {"speedup_possible", r->times.sequential / floor},
               {"sequential_us", microseconds(r->times.sequential)},
               {"pipelined_us", microseconds(r->pipelined.seconds)},
               {"compute_alone_us", microseconds(r->compute_alone.seconds())},
               {"experts_loaded", r->loaded},
               {"bytes_loaded", r->bytes}};
  const auto add_alone = [&](const char* name, const ps::Floor& alone) {
    if (alone.passes() > 0) metrics[name] = microseconds(alone.seconds());
  };
  add_alone("upload_alone_us", r->upload_alone);
  add_alone("read_alone_us", r->read_alone);
  if (disk) metrics["disk_alone_us"] = microseconds(disk->seconds(r->bytes));
  if (r->streamed_seconds) metrics["streamed_us"] = microseconds(*r->streamed_seconds);
  results.add({{"case", each.name},
               {"params",
                {{"layers", shape.layers},
                 {"experts", shape.experts},
                 {"hidden", shape.hidden},
                 {"width", shape.width},
                 {"dtype", name(shape.dtype)},
                 {"choices", r->choices},
                 {"tokens", r->batch * r->sequence},
                 {"from", name(r->from)},
                 {"depth", r->depth}}},
               {"correct", true},
               {"max_error", 0},
               {"tolerance", 0},
               {"floor_us", microseconds(floor)},
               {"ours", {{"call_us", microseconds(seconds)}}},
               {"peer", Json::object()},
               {"metrics", std::move(metrics)}});
}

void run(const Settings& settings) {
  const ps::Device device = ps::Device::parse(settings.device);
  ps::LimitsOptions limit_options = settings.quick ? ps::quick_limits() : ps::LimitsOptions{};
  limit_options.disk = false;
  bench::Results results("expert_overlap", device, ps::measure_limits(device, limit_options));
  for (Case& each : cases(settings.quick)) {
    if (each.name.find(settings.only) == std::string::npos) continue;
    if (device.kind() == ps::DeviceKind::cpu && each.options.from != ps::ExpertsFrom::disk) {
      fmt::print("{:<24} left out: on the CPU device only a disk has anything to load\n",
                 each.name);
      continue;
    }
    measure(settings, device, std::move(each), results);
  }
  if (!settings.output.empty()) results.write(settings.output);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Experts that are loaded while others are computed");
  Settings settings;
  app.add_option("--output", settings.output, "Results file to write");
  app.add_option("--device", settings.device, "cpu, cuda, cuda:N or best");
  app.add_option("--directory", settings.directory, "Folder on the disk to measure");
  app.add_option("--only", settings.only, "Cases whose names contain this");
  app.add_option("--turns", settings.turns, "Timed passes per case")->check(CLI::PositiveNumber);
  app.add_flag("--quick", settings.quick, "Small experts, for a first look; not a measurement");
  CLI11_PARSE(app, argc, argv);
  return bench::guarded("bench_expert_overlap", [&] { run(settings); });
}
