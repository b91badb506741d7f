// penstock tune: times the kernels that operators can choose from, and saves the fastest.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "commands.h"
#include "options.h"
#include "penstock/base/error.h"
#include "penstock/measure/tune.h"
#include "program.h"
#include "progress.h"
#include "tune_text.h"

namespace ps::cli {
namespace {

using Json = nlohmann::ordered_json;

struct TuneCommand {
  std::string op, device = "best";
  bool json = false, quick = false, dry_run = false, reset = false, list = false;
};

void print_json(const Json& document) {
  fmt::print("{}\n", document.dump(2, ' ', false, Json::error_handler_t::replace));
}

void warn(const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings) {
    fmt::print(stderr, "penstock: warning: {}\n", warning);
  }
}

std::filesystem::path checked_path() {
  std::filesystem::path file = choices_path();
  if (file.empty()) {
    throw Unsupported(
        "there is no folder for the choices: set PENSTOCK_CACHE, XDG_CACHE_HOME or HOME");
  }
  return file;
}

void list(const TuneCommand& command, const Device& device) {
  const TuneState state = tune_state(device, command.op);
  if (command.json) {
    return print_json({{"schema", 1},
                       {"device", device.name()},
                       {"problems", state_json(state)},
                       {"warnings", state.warnings}});
  }
  warn(state.warnings);
  fmt::print("{}{}", state_text(state), nothing_to_choose(state, device));
}

void reset(const TuneCommand& command, const Device& device) {
  const std::vector<std::string> warnings = tune_state(device, command.op).warnings;
  const std::size_t forgotten = forget_choices(checked_path(), machine_key(device), command.op);
  if (command.json) {
    return print_json({{"schema", 1},
                       {"device", device.name()},
                       {"forgotten", forgotten},
                       {"warnings", warnings}});
  }
  warn(warnings);
  fmt::print("{} measured choice{} for {} forgotten; the built-in choices are used\n", forgotten,
             forgotten == 1 ? "" : "s", device.name());
}

Tuning measured(const TuneCommand& command, const Device& device, const std::stop_token& stop) {
  ProgressBar bar;
  TuneOptions options = command.quick ? quick_tune() : TuneOptions{};
  options.op = command.op;
  options.stop = stop;
  options.progress = [&bar](std::string_view problem, double share) { bar.update(share, problem); };
  return tune(device, options);
}

void tune(const TuneCommand& command, const Device& device, const std::stop_token& stop) {
  const TuneState before = tune_state(device, command.op);
  const bool choice = std::ranges::any_of(
      before.problems, [](const ProblemState& each) { return each.kernels.size() > 1; });
  const bool keeps = choice && !command.dry_run;
  const std::string file = keeps ? checked_path().string() : "";  // before time is spent
  const Tuning tuning = measured(command, device, stop);
  if (keeps) save_choices(file, choices_of(tuning));
  if (command.json) {
    return print_json({{"schema", 1},
                       {"device", device.name()},
                       {"date", tuning.date},
                       {"problems", tuning_json(tuning)},
                       {"kept", keeps ? Json(file) : Json(nullptr)},
                       {"warnings", before.warnings}});
  }
  warn(before.warnings);
  fmt::print("{}{}", tuning_text(tuning), nothing_to_choose(before, device));
  if (keeps) fmt::print("saved in {}\n", file);
  if (choice && command.dry_run) fmt::print("nothing saved (--dry-run)\n");
}

void run(const TuneCommand& command, const std::stop_token& stop) {
  const Device device = Device::parse(command.device);
  if (command.list) return list(command, device);
  if (command.reset) return reset(command, device);
  tune(command, device, stop);
}

}  // namespace

void add_tune(Program& program) {
  const auto options = std::make_shared<TuneCommand>();
  CLI::App& command = *program.app().add_subcommand(
      "tune", "Times the kernels of operators on this GPU, and saves the fastest for later calls");
  command.add_option("OP", options->op, "The operator; default: all")
      ->type_name("")
      ->check(CLI::IsMember(tunable_operators()));
  add_device_option(command, options->device);
  add_json_flag(command, options->json);
  CLI::Option* quick =
      command.add_flag("--quick", options->quick,
                       "Measure a fifth of the rounds; a kernel then needs a larger gain to win");
  CLI::Option* dry_run =
      command.add_flag("--dry-run", options->dry_run, "Measure and print, but do not save");
  CLI::Option* reset =
      command.add_flag("--reset", options->reset,
                       "Delete the saved choices for this device; the built-in ones are then used");
  reset->excludes(quick)->excludes(dry_run);
  command
      .add_flag("--list", options->list,
                "Print each problem, its kernels, and which is used and why; do not measure")
      ->excludes(quick)
      ->excludes(dry_run)
      ->excludes(reset);
  command.footer(
      "A problem is a class of calls that use the same kernel, such as axpby of bf16. All kernels\n"
      "of a problem give the same results, so a choice changes times. Only gemm's last digits may\n"
      "differ, because some of its kernels add in another order.\n"
      "Runs are interleaved in changing order, on memory larger than the L2 cache. The fastest\n"
      "kernel replaces the built-in choice if its gain (median over the rounds) is larger than "
      "the\n"
      "noise (three standard errors of that median, printed after it). A kernel that a call names\n"
      "takes precedence over any choice.\n\n"
      "Choices are saved in choices.json, in the first of these folders that is set:\n"
      "$PENSTOCK_CACHE, $XDG_CACHE_HOME/penstock, ~/.cache/penstock. They apply to this GPU,\n"
      "driver, CPU and version. A program reads them at the first call of an operator.\n\n"
      "Examples:\n"
      "  penstock tune                       every operator on the first GPU\n"
      "  penstock tune transform --dry-run   what would be chosen\n"
      "  penstock tune --list --json         what is used now");
  command.callback([&program, options] {
    program.chosen([&program, options] { run(*options, program.stop()); });
  });
}

}  // namespace ps::cli
