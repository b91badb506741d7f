// transform where the GPU's memory is not the bottleneck: data that streams from the host through
// the device and back, and the CPU. Writes bench/results/transform_host.json. `penstock bench
// transform` measures data in the GPU's memory.
//
//   bench_transform_host --output bench/results/transform_host.json
#include <CLI/CLI.hpp>
#include <string>

#include "penstock/base/units.h"
#include "penstock/measure/limits.h"
#include "support/guarded.h"
#include "support/results.h"
#include "support/transform_host.h"

namespace {

struct Settings {
  std::string output, device = "best", directory = ".", only;
  bool quick = false;
};

void run(const Settings& settings) {
  const ps::Device device = ps::Device::parse(settings.device);
  const bool quick = settings.quick;
  ps::LimitsOptions limit_options = quick ? ps::quick_limits() : ps::LimitsOptions{};
  limit_options.disk = false;
  const ps::Limits limits = ps::measure_limits(device, limit_options);
  const ps::Rate* host_copy = limits.find(ps::Ceiling::host_copy);
  bench::Results results("transform_host", device, limits);
  const bench::TransformHostOptions options{
      .device = device,
      .bytes = (quick ? 256 : 4096) * ps::MiB,
      .file_bytes = (quick ? 128 : 4096) * ps::MiB,
      .cpu_bytes = (quick ? 64 : 256) * ps::MiB,
      .host_copy = host_copy != nullptr ? host_copy->bytes_per_second : 0,
      .device_bytes = 2 * ps::GiB,
      .directory = settings.directory,
      .turns = quick ? 1 : 5};
  if (settings.only != "cpu") bench::streamed_cases(options, results);
  if (settings.only != "stream") bench::cpu_cases(options, results);
  if (!settings.output.empty()) results.write(settings.output);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Elementwise functions of data that streams through the device, and on the CPU");
  Settings settings;
  app.add_option("--output", settings.output, "Results file to write");
  app.add_option("--device", settings.device, "cpu, cuda, cuda:N or best");
  app.add_option("--directory", settings.directory, "Where the files of the streaming cases are");
  app.add_option("--only", settings.only, "One part alone")
      ->check(CLI::IsMember({"stream", "cpu"}));
  app.add_flag("--quick", settings.quick, "Small sizes, for a first look; not a measurement");
  CLI11_PARSE(app, argc, argv);
  return bench::guarded("bench_transform_host", [&] { run(settings); });
}
