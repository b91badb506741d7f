// penstock overlap: copies and compute, one after the other and overlapped, beside their floor.
#include <fmt/format.h>

#include <memory>

#include "commands.h"
#include "options.h"
#include "overlap_text.h"
#include "penstock/base/error.h"
#include "penstock/measure/overlap.h"
#include "penstock/measure/report.h"
#include "program.h"
#include "progress.h"
#include "report_folder.h"

namespace ps::cli {
namespace {

struct OverlapCommand {
  std::string device = "best";
  std::string ways = "3";
  std::string output = "build/overlap";
  std::size_t items = 8, item_bytes = 0, chunk = 0, depth = 4;
  double ratio = 1;
  int rounds = 0, repeats = 7;
  bool uncut = false, sweep = false, json = false;
};

Ways parse_ways(const std::string& text) {
  return text == "2" ? Ways::two : text == "3" ? Ways::three : Ways::four;
}

// From an eighth of the item down to 1/256 of it.
std::vector<std::size_t> chunks_to_sweep(std::size_t item_bytes) {
  std::vector<std::size_t> chunks;
  for (std::size_t pieces = 4; pieces <= 256; pieces *= 2) {
    const std::size_t chunk = item_bytes / pieces / 4 * 4;
    if (chunk >= 64 * KiB) chunks.push_back(chunk);
  }
  return chunks;
}

void run(const OverlapCommand& command, const std::stop_token& stop) {
  const Device device = Device::parse(command.device);
  const ReportFolder output(command.output);
  const bool gpu = device.kind() == DeviceKind::cuda;
  const std::size_t item_bytes =
      command.item_bytes > 0 ? command.item_bytes : (gpu ? 256 : 16) * MiB;
  std::unique_ptr<OverlapResult> result;
  {
    ProgressBar bar;
    bar.update(0, "filling memory");
    OverlapExperiment experiment(device, command.items, item_bytes);
    OverlapOptions options{.device = device,
                           .ways = parse_ways(command.ways),
                           .chunk = command.uncut ? item_bytes : command.chunk,
                           .depth = command.depth,
                           .compute_ratio = command.ratio,
                           .rounds = command.rounds,
                           .repeats = command.repeats,
                           .tracing = Tracing::best};
    if (command.sweep) {
      options.sweep_chunks = chunks_to_sweep(item_bytes);
      options.sweep_depths = {1, 2, 3, 8};
    }
    options.stop = stop;
    options.progress = [&bar](std::string_view what, double share) { bar.update(share, what); };
    result = experiment.run(options);
  }
  output.write(as_json(*result, device, true), "Penstock overlap");
  fmt::print("{}\n",
             command.json ? as_json(*result, device, false) : overlap_text(*result, device));
  if (!command.json) fmt::print("{}", output.text());
}

}  // namespace

void add_overlap(Program& program) {
  const auto options = std::make_shared<OverlapCommand>();
  CLI::App& command = *program.app().add_subcommand(
      "overlap",
      "Measures copies and compute without and with overlap, and compares them with their floor");
  add_device_option(command, options->device);
  add_json_flag(command, options->json);
  command.add_option("--output", options->output, "Folder for report.json and report.html")
      ->type_name("DIR")
      ->capture_default_str();
  command
      .add_option("--ways", options->ways,
                  "2: upload and compute; 3: also download; 4: also a copy on the device")
      ->check(CLI::IsMember({"2", "3", "4"}))
      ->capture_default_str();
  command.add_option("--items", options->items, "Number of items")
      ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 32).description(""))
      ->capture_default_str();
  add_bytes_option(command, "--item-bytes", options->item_bytes,
                   "Bytes per item; default: 256 MiB on a GPU, 16 MiB on the CPU");
  auto* chunk = command.add_option_group("chunk");
  add_bytes_option(*chunk, "--chunk", options->chunk,
                   "Bytes per chunk; default: chosen from measured engine costs");
  chunk->add_flag("--uncut", options->uncut, "Do not cut items into chunks");
  chunk->require_option(0, 1);
  command.add_option("--depth", options->depth, "Slots per ring")
      ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 16).description(""))
      ->capture_default_str();
  command.add_option("--ratio", options->ratio, "Compute time divided by upload time")
      ->capture_default_str();
  command.add_option("--rounds", options->rounds, "Multiply-adds per element, instead of --ratio");
  command
      .add_option("--repeats", options->repeats, "Number of timed runs; the result is their median")
      ->capture_default_str();
  command.add_flag("--sweep", options->sweep, "Also time other chunk sizes and depths");
  command.footer(
      "Examples:\n"
      "  penstock overlap                      three-way, with an automatic chunk size\n"
      "  penstock overlap --ways 2 --ratio 0.8 --sweep\n"
      "  penstock overlap --uncut              whole items, to see what chunks gain");
  command.callback([&program, options] {
    program.chosen([&program, options] { run(*options, program.stop()); });
  });
}

}  // namespace ps::cli
