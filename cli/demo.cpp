#include <fmt/format.h>

#include <memory>

#include "commands.h"
#include "demo.h"
#include "options.h"
#include "overlap_text.h"
#include "penstock/measure/report.h"
#include "program.h"
#include "progress.h"
#include "report_folder.h"

namespace ps::cli {
namespace {

struct Shown {
  std::string text, json, report;
};

Shown on_gpu(const Device& device, const DemoCommand& command, const std::stop_token& stop,
             ProgressBar& bar) {
  bar.update(0, "filling memory");
  OverlapExperiment experiment(device, 8, (command.quick ? 32 : 256) * MiB);
  OverlapOptions options{
      .device = device, .repeats = command.quick ? 3 : 7, .tracing = Tracing::best};
  options.stop = stop;
  options.timer = command.timer;
  options.progress = [&bar](std::string_view what, double share) { bar.update(share, what); };
  const auto result = experiment.run(options);
  return {overlap_text(*result, device), as_json(*result, device, false),
          as_json(*result, device, true)};
}

Shown on_cpu(const DemoCommand& command, const std::stop_token& stop, ProgressBar& bar) {
  FileOverlapOptions options{.directory = command.directory,
                             .bytes = (command.quick ? 32 : 256) * MiB,
                             .chunk = (command.quick ? 1 : 4) * MiB,
                             .repeats = command.quick ? 3 : 5};
  options.stop = stop;
  options.timer = command.timer;
  options.progress = [&bar](std::string_view what, double share) { bar.update(share, what); };
  const auto result = measure_file_overlap(options);
  return {overlap_text(*result), as_json(*result, false), as_json(*result, true)};
}

}  // namespace

void run_demo(const DemoCommand& given, const std::stop_token& stop) {
  DemoCommand command = given;
  const ReportFolder output(command.output);
  if (command.directory.empty()) command.directory = command.output;

  const Device device = Device::parse(command.device);
  Shown shown;
  {
    ProgressBar bar;
    shown = device.kind() == DeviceKind::cuda ? on_gpu(device, command, stop, bar)
                                              : on_cpu(command, stop, bar);
  }
  output.write(shown.report, "Penstock demo");
  fmt::print("{}\n", command.json ? shown.json : shown.text);
  if (!command.json) fmt::print("{}", output.text());
}

void add_demo(Program& program) {
  const auto options = std::make_shared<DemoCommand>();
  CLI::App& command = *program.app().add_subcommand(
      "demo", "Runs the same work without and with overlap on this machine, and compares both");
  add_device_option(command, options->device);
  add_json_flag(command, options->json);
  command.add_option("--output", options->output, "Folder for report.json and report.html")
      ->type_name("DIR")
      ->capture_default_str();
  command
      .add_option(
          "--dir", options->directory,
          "Without a GPU: where the file is written and removed; default: the output folder")
      ->type_name("DIR")
      ->check(CLI::ExistingDirectory);
  command.add_flag("--quick", options->quick, "Small sizes, for a first look; not a measurement");
  command.footer(
      "With a GPU: upload, compute and download overlap. Without one: the CPU computes while a\n"
      "file is read without the page cache (O_DIRECT).\n\n"
      "Example:\n  penstock demo --quick");
  command.callback([&program, options] {
    program.chosen([&program, options] { run_demo(*options, program.stop()); });
  });
}

}  // namespace ps::cli
