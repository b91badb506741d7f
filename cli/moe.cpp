// penstock moe: expert layers whose weights do not fit on the device, loaded and computed one after
// the other and overlapped, beside the time of the slowest engine.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "moe_text.h"
#include "options.h"
#include "penstock/base/error.h"
#include "penstock/base/text_file.h"
#include "penstock/base/units.h"
#include "penstock/measure/experts.h"
#include "penstock/measure/page.h"
#include "program.h"
#include "progress.h"
#include "report_folder.h"

namespace ps::cli {
namespace {

constexpr std::size_t largest_trace = 256 * MiB;

struct MoeCommand {
  std::string device = "best", model, dtype, from, directory = ".", output = "build/moe";
  std::int64_t layers = 1, experts = 0, hidden = 0, width = 0, choices = 0;
  std::int64_t batch = 1, sequence = 0, rounding = 0, distinct = 0;
  std::string kernels;
  std::size_t depth = 4, streams = 2, cache = 0, steps = 100, decode_cache = 0;
  int repeats = 5;
  bool sweep = false, json = false;
};

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const ExpertModel& model : expert_models()) names.emplace_back(model.name);
  return names;
}

// Without a model and sizes: of a size that the device computes in seconds.
ExpertModel model_of(const MoeCommand& command, bool gpu) {
  for (const ExpertModel& model : expert_models()) {
    if (model.name == command.model) return model;
  }
  if (gpu) return expert_models().front();
  return {.shape = {.experts = 32, .hidden = 512, .width = 256}, .choices = 4};
}

ExpertOverlapOptions options_of(const MoeCommand& command, const Device& device) {
  const bool gpu = device.kind() == DeviceKind::cuda;
  const ExpertModel model = model_of(command, gpu);
  ExpertOverlapOptions options{.device = device,
                               .shape = model.shape,
                               .choices = model.choices,
                               .activation = model.activation,
                               .batch = command.batch,
                               .rounding = command.rounding,
                               .directory = command.directory,
                               .distinct = command.distinct,
                               .depth = command.depth,
                               .streams = command.streams,
                               .cache = command.cache,
                               .repeats = command.repeats,
                               .decode_steps = command.steps,
                               .decode_cache = command.decode_cache,
                               .tracing = Tracing::best};
  const auto set = [](std::int64_t& to, std::int64_t given) { to = given > 0 ? given : to; };
  options.shape.layers = command.layers;
  set(options.shape.experts, command.experts);
  set(options.shape.hidden, command.hidden);
  set(options.shape.width, command.width);
  set(options.choices, command.choices);
  if (command.choices == 0) options.choices = std::min(options.choices, options.shape.experts);
  options.sequence = command.sequence > 0 ? command.sequence : gpu ? 4096 : 64;
  if (!command.dtype.empty()) {
    options.shape.dtype = command.dtype == "f32"   ? DType::f32
                          : command.dtype == "f16" ? DType::f16
                                                   : DType::bf16;
  }
  const bool memory = command.from.empty() ? gpu : command.from == "memory";
  options.from = memory ? ExpertsFrom::memory : ExpertsFrom::disk;
  if (command.sweep) {
    options.sweep_depths = {1, 2, 3, 8};
    const auto experts = static_cast<std::size_t>(options.shape.layers * options.shape.experts);
    for (const std::size_t part : {8, 4, 2}) options.sweep_caches.push_back(experts / part);
    std::erase(options.sweep_caches, command.cache);
    std::erase(options.sweep_depths, command.depth);
  }
  return options;
}

void run(const MoeCommand& command, const std::stop_token& stop) {
  const Device device = Device::parse(command.device);
  const ReportFolder output(command.output);
  std::string kernels;
  if (!command.kernels.empty()) {
    kernels = read_text(command.kernels, largest_trace);
    with_kernel_trace(R"({"schema": 1})", kernels, command.kernels);  // fails before it measures
  }
  std::unique_ptr<ExpertOverlapResult> result;
  {
    ProgressBar bar;
    bar.update(0, "making the routing");
    ExpertOverlapOptions options = options_of(command, device);
    options.stop = stop;
    options.progress = [&bar](std::string_view what, double share) { bar.update(share, what); };
    result = measure_expert_overlap(options);
  }
  std::string report = as_json(*result, device, true);
  if (!kernels.empty()) report = with_kernel_trace(report, kernels, command.kernels);
  output.write(report, "Penstock moe");
  fmt::print("{}\n", command.json ? as_json(*result, device, false)
                                  : moe_text(*result, device, command.model));
  if (!command.json) fmt::print("{}", output.text());
}

void add_shape_options(CLI::App& command, MoeCommand& options) {
  const auto number = [&](const char* flag, std::int64_t& value, const char* help) {
    return command.add_option(flag, value, help)
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 32).description(""));
  };
  command.add_option("--model", options.model, "Sizes of a published model, one layer of it")
      ->check(CLI::IsMember(model_names()));
  number("--layers", options.layers, "Expert layers")->capture_default_str();
  number("--experts", options.experts, "Experts per layer");
  number("--hidden", options.hidden, "Size of a token, a multiple of 8");
  number("--ffn", options.width, "Width of an expert, a multiple of 8");
  number("--top-k", options.choices, "Experts per token");
  number("--batch", options.batch, "Sequences")->capture_default_str();
  number("--seq", options.sequence, "Tokens per sequence; default: 4096 on a GPU, 64 on the CPU");
  command.add_option("--dtype", options.dtype, "Type of weights and tokens; default: bf16")
      ->check(CLI::IsMember({"bf16", "f16", "f32"}));
  number("--distinct", options.distinct,
         "Number of different experts to allocate if memory is short; the others reuse their "
         "weights");
  command
      .add_option("--rounding", options.rounding,
                  "Round the tokens of each expert to a multiple of this")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 16).description(""));
}

}  // namespace

void add_moe(Program& program) {
  const auto options = std::make_shared<MoeCommand>();
  CLI::App& command = *program.app().add_subcommand(
      "moe",
      "Measures expert layers that are loaded while others are computed, from memory or "
      "from a disk");
  add_device_option(command, options->device);
  add_json_flag(command, options->json);
  command.add_option("--output", options->output, "Folder for report.json and report.html")
      ->type_name("DIR")
      ->capture_default_str();
  add_shape_options(command, *options);
  command
      .add_option("--from", options->from,
                  "Where the weights are; default: memory on a GPU, disk on the CPU")
      ->check(CLI::IsMember({"memory", "disk"}));
  command
      .add_option("--directory", options->directory,
                  "Folder on the disk to measure; a temporary file with all weights is made there")
      ->type_name("DIR")
      ->capture_default_str();
  const auto range = [](std::size_t least, std::size_t most) {
    return CLI::Range(least, most).description("");
  };
  command.add_option("--depth", options->depth, "Slots that experts are loaded into")
      ->check(range(1, 4096))
      ->capture_default_str();
  command
      .add_option("--streams", options->streams,
                  "1: everything on one stream; else one for products, the others for copies")
      ->check(range(1, 16))
      ->capture_default_str();
  command
      .add_option("--cache", options->cache, "Experts that stay loaded, those with the most tokens")
      ->check(range(0, std::size_t{1} << 32))
      ->capture_default_str();
  command
      .add_option("--repeats", options->repeats, "Number of timed runs; the result is their median")
      ->check(CLI::Range(1, 1000000).description(""))
      ->capture_default_str();
  command
      .add_option("--steps", options->steps,
                  "Decode steps, of one token per sequence, through a cache; 0: none")
      ->check(range(0, 100000))
      ->capture_default_str();
  command
      .add_option("--decode-cache", options->decode_cache,
                  "Experts that this cache has room for; default: a quarter of all")
      ->check(range(1, std::size_t{1} << 20));
  command
      .add_option("--kernels", options->kernels,
                  "A trace that `penstock ladder moe --trace` wrote, for the page")
      ->type_name("FILE");
  command.add_flag("--sweep", options->sweep, "Also time other depths and caches");
  command.footer(
      "The weights and the router's logits are random. The sequential run loads each expert "
      "before\n"
      "it computes it; the pipelined run loads experts into free slots meanwhile. The floor is "
      "the\n"
      "slowest engine alone. The last row is the class StreamedExperts, which models use: it "
      "reads\n"
      "from the GPU which experts are needed. The decode steps use it, too: their experts are "
      "drawn\n"
      "by Zipf's law, and its cache begins empty.\n\n"
      "Examples:\n"
      "  penstock moe --model Qwen3-30B-A3B --sweep\n"
      "  penstock moe --model Mixtral-8x7B --from disk --directory /fast_disk\n"
      "  penstock moe --experts 256 --hidden 7168 --ffn 14336 --top-k 8 --batch 32 --seq 512 \\\n"
      "      --distinct 64\n"
      "  penstock moe --model Qwen3-30B-A3B --seq 1      one token: few experts are needed\n"
      "  penstock moe --device cpu                       from a disk, without a GPU");
  command.callback([&program, options] {
    program.chosen([&program, options] { run(*options, program.stop()); });
  });
}

}  // namespace ps::cli
