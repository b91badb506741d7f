// penstock ladder: runs the rungs of a ladder, from the simplest to the fastest, and prints times.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "commands.h"
#include "options.h"
#include "penstock/base/error.h"
#include "program.h"
#include "progress.h"
#include "support/counters.h"
#include "support/ladder.h"

namespace ps::cli {
namespace {

struct LadderOptions {
  std::string device = "best";
  std::string only;
  std::size_t bytes = 0;
  std::size_t chunk = 0;
  std::string trace;
  std::vector<std::int64_t> shape;
  std::size_t profile_row = SIZE_MAX;  // SIZE_MAX: none
  bool quick = false;
  bool all_shapes = false;
  bool counters = false;
  bool list = false;
  bool json = false;
};

// The rungs of one ladder, or the one called `only`.
std::vector<ladder::Rung> select(std::string_view name, std::string_view only = {}) {
  std::vector<ladder::Rung> chosen = ladder::rungs();
  std::erase_if(chosen, [&](const ladder::Rung& rung) {
    return rung.ladder != name || (!only.empty() && rung.name != only);
  });
  return chosen;
}

// The options of a run that profiles one row of a rung, of what `options` measured.
std::vector<std::string> profile_words(std::string_view name, const LadderOptions& options,
                                       const ladder::Rung& rung, std::size_t row) {
  std::vector<std::string> words{
      "ladder",        std::string(name),   "--only",   std::string(rung.name),
      "--profile-row", std::to_string(row), "--device", options.device};
  if (options.quick) words.emplace_back("--quick");
  if (options.all_shapes) words.emplace_back("--all-shapes");
  if (options.bytes != 0) {
    words.insert(words.end(), {"--bytes", std::to_string(options.bytes)});
  }
  if (!options.shape.empty()) {
    words.insert(words.end(), {"--shape", fmt::format("{}", fmt::join(options.shape, ","))});
  }
  return words;
}

void climb(std::string_view name, const LadderOptions& options, const std::stop_token& stop) {
  const std::vector<ladder::Rung> rungs = select(name, options.only);
  if (options.list) {
    fmt::print("{}", options.json ? ladder::list_as_json(rungs) : ladder::list_as_text(rungs));
    return;
  }
  if (rungs.empty()) {  // a build without CUDA has no kernels
    throw Unsupported(fmt::format("the ladder '{}' needs a GPU: {}", name, Device::why_no_gpu()));
  }
  const bool profiles = options.profile_row != SIZE_MAX;
  ladder::Settings settings{.device = Device::parse(options.device),
                            .bytes = options.bytes,
                            .chunk = options.chunk,
                            .quick = options.quick,
                            .shape = options.shape,
                            .all_shapes = options.all_shapes,
                            .trace = options.trace,
                            .stop = stop};
  if (profiles) settings.profile_row = options.profile_row;
  ladder::Context context(std::move(settings));
  std::vector<ladder::RungRows> results;
  try {
    ProgressBar bar;
    const auto starting = [&](const ladder::Rung& rung, double fraction) {
      bar.update(fraction, rung.name);
    };
    results = ladder::climb(context, rungs, starting);
    if (options.counters) {
      ladder::measure_counters(
          results,
          [&](const ladder::Rung& rung, std::size_t row) {
            return profile_words(name, options, rung, row);
          },
          starting, stop);
    }
  } catch (const ladder::Profiled&) {
    return;
  }
  if (profiles) {
    throw InvalidArgument("--profile-row", "a row of the rung",
                          std::to_string(options.profile_row));
  }
  fmt::print("{}",
             options.json ? ladder::as_json(context, results) : ladder::as_table(context, results));
}

// What all ladders have in common.
CLI::App& add_command(CLI::App& ladders, Program& program, const std::string& name,
                      const std::string& about, const std::shared_ptr<LadderOptions>& options) {
  CLI::App& command = *ladders.add_subcommand(name, about);
  add_device_option(command, options->device);
  add_json_flag(command, options->json);
  std::vector<std::string> names;
  for (const ladder::Rung& rung : select(name)) names.emplace_back(rung.name);
  CLI::Option& only =
      *command.add_option("--only", options->only, "Run only this rung")->type_name("RUNG");
  if (!names.empty()) only.check(CLI::IsMember(names));
  command.add_flag("--quick", options->quick,
                   "Small sizes, for a first look; the times are not representative");
  command.add_flag("--list", options->list, "List the rungs without running them");
  command.callback([&program, options, name] {
    program.chosen([&program, options, name] { climb(name, *options, program.stop()); });
  });
  return command;
}

void add_host(CLI::App& ladders, Program& program) {
  const auto options = std::make_shared<LadderOptions>();
  CLI::App& command = add_command(
      ladders, program, "host",
      "Host to device: from pageable memory to four-way overlap, with the common mistakes",
      options);
  add_bytes_option(command, "--bytes", options->bytes,
                   "Bytes moved per row; default: 2 GiB on a GPU, 256 MiB on the CPU");
  add_bytes_option(command, "--chunk", options->chunk,
                   "Bytes per chunk; default: chosen from measured engine costs");
  command.footer(
      "speed-up: relative to the first row of the same work.\n"
      "hidden: the time that overlap saved, as a share of what it can save.\n"
      "efficiency: floor / time; the floor is the time of the slowest engine alone.\n\n"
      "Examples:\n"
      "  penstock ladder host --quick\n"
      "  penstock ladder host --only depth --bytes 1GiB\n"
      "  penstock ladder host --json | jq '.rungs[] | {name, rows: [.rows[].seconds]}'");
}

void add_layer_shape(CLI::App& command, const std::shared_ptr<LadderOptions>& options,
                     const std::string& about) {
  command
      .add_option("--shape", options->shape,
                  "Tokens, hidden size, width of an expert, experts, experts per token; " + about)
      ->type_name("T,d,n,E,K")
      ->delimiter(',')
      ->expected(5)
      ->check(CLI::PositiveNumber);
}

void add_experts(CLI::App& ladders, Program& program) {
  const auto options = std::make_shared<LadderOptions>();
  CLI::App& command = add_command(
      ladders, program, "experts",
      "Experts that do not fit on the GPU: from one load after the other to streaming, with a "
      "cache and compressed",
      options);
  add_layer_shape(command, options, "default: 4096,2048,768,128,8, smaller on the CPU");
  command.footer(
      "speed-up: relative to the first row.\n"
      "hidden: the time that overlap saved, as a share of what it can save.\n"
      "efficiency: floor / time; the floor is the slower of loading and computing alone.\n"
      "`penstock moe` measures one configuration in detail.\n\n"
      "Examples:\n"
      "  penstock ladder experts --quick\n"
      "  penstock ladder experts --only cached --shape 16384,2048,768,128,8");
}

// A ladder of kernels, which needs a GPU.
struct KernelLadder {
  std::string name, about;
  std::string example;     // the name of a rung
  std::string bytes = {};  // about --bytes, where there is such an option
  bool traced = true, has_shapes = false;
  bool is_layer = false;  // of experts, with a shape of five numbers
};

void add_kernels(CLI::App& ladders, Program& program, const KernelLadder& ladder) {
  const auto options = std::make_shared<LadderOptions>();
  CLI::App& command = add_command(ladders, program, ladder.name, ladder.about, options);
  if (!ladder.bytes.empty()) add_bytes_option(command, "--bytes", options->bytes, ladder.bytes);
  command.add_flag("--counters", options->counters,
                   "Count DRAM traffic and L2 hits of every row with ncu; takes seconds per row");
  // How --counters starts this program under ncu.
  command.add_option("--profile-row", options->profile_row)->group("");
  if (ladder.traced) {
    command
        .add_option("--trace", options->trace,
                    "Folder for pages with the timeline inside each rung's kernel")
        ->type_name("DIR");
  }
  if (ladder.has_shapes) {
    command.add_flag("--all-shapes", options->all_shapes,
                     "Run all shapes, from tiny to very long, instead of two");
  }
  if (ladder.is_layer) {
    add_layer_shape(command, options, "default: 16384,2048,768,128,8");
    command.footer(
        "speed-up: relative to the first row. Each rung is one of the kernels of ps::moe(), with\n"
        "the weights on the GPU; `penstock ladder experts` is about weights that are not.\n\n"
        "Examples:\n"
        "  penstock ladder moe --quick\n"
        "  penstock ladder moe --trace build/moe\n"
        "  penstock ladder moe --trace build/moe --shape 4096,7168,2048,64,8");
    return;
  }
  command.footer(fmt::format(
      "share: speed relative to the peer or ceiling measured in the same run. speed-up: relative "
      "to\n"
      "the first row of the same work. The driver reports registers, shared memory and "
      "occupancy.\n\n"
      "Examples:\n"
      "  penstock ladder {0} --quick\n"
      "  penstock ladder {0} --only {1} --counters\n"
      "  penstock ladder {0} --list --json    the instructions that each rung's machine code "
      "contains",
      ladder.name, ladder.example));
}

}  // namespace

void add_ladder(Program& program) {
  CLI::App& command = *program.app().add_subcommand("ladder", about_ladder);
  command.require_subcommand(1);
  command.footer("Example:\n  penstock ladder host --quick");
  add_host(command, program);
  add_experts(command, program);
  add_kernels(
      command, program,
      {.name = "copy",
       .about =
           "GPU memory to multiprocessors: from plain loads to warp roles on a ring of TMA copies",
       .example = "vectorised",
       .bytes = "Bytes of input per row; default: 2 GiB"});
  add_kernels(
      command, program,
      {.name = "gemm",
       .about = "Matrix products: from one thread per element to tensor cores fed by clusters",
       .example = "mma-sync"});
  add_kernels(
      command, program,
      {.name = "resample",
       .about =
           "Resampling at irregular times: from one search per thread to a dedicated search warp",
       .example = "warp-search",
       .traced = false,
       .has_shapes = true});
  add_kernels(command, program,
              {.name = "attention",
               .about = "Attention: from scalar arithmetic to tensor cores that never wait",
               .example = "wgmma"});
  add_kernels(command, program,
              {.name = "decode",
               .about = "Attention of one query per sequence: from one block per sequence to equal "
                        "parts of all keys",
               .example = "equal-cuts",
               .traced = false});
  add_kernels(command, program,
              {.name = "moe",
               .about = "An expert layer: without overlap inside the kernels, and with it",
               .example = "overlapped",
               .is_layer = true});
}

}  // namespace ps::cli
