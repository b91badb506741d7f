// penstock ladder: every rung of a ladder, from the plain way up, each with its number.
#include <fmt/format.h>

#include <memory>

#include "commands.h"
#include "options.h"
#include "program.h"
#include "progress.h"
#include "support/ladder.h"

namespace ps::cli {
namespace {

struct LadderOptions {
  std::string device = "best";
  std::string only;
  std::size_t bytes = 0;
  std::size_t chunk = 0;
  bool quick = false;
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

void climb(std::string_view name, const LadderOptions& options, const std::stop_token& stop) {
  const std::vector<ladder::Rung> rungs = select(name, options.only);
  ladder::Context context({.device = Device::parse(options.device),
                           .bytes = options.bytes,
                           .chunk = options.chunk,
                           .quick = options.quick,
                           .stop = stop});
  std::vector<ladder::RungRows> results;
  {
    ProgressBar bar;
    results = ladder::climb(context, rungs, [&](const ladder::Rung& rung, double fraction) {
      bar.update(fraction, rung.name);
    });
  }
  fmt::print("{}",
             options.json ? ladder::as_json(context, results) : ladder::as_table(context, results));
}

void add_host(CLI::App& ladders, Program& program) {
  const auto options = std::make_shared<LadderOptions>();
  CLI::App& command = *ladders.add_subcommand(
      "host",
      "Between host and device: from pageable memory to overlap in four ways, and the traps");
  add_device_option(command, options->device);
  add_json_flag(command, options->json);
  add_bytes_option(command, "--bytes", options->bytes,
                   "Bytes to move in each row; default: 2 GiB on a GPU, 256 MiB on the CPU");
  add_bytes_option(command, "--chunk", options->chunk,
                   "Bytes of a chunk; default: chosen from what the engines need");
  std::vector<std::string> names;
  for (const ladder::Rung& rung : select("host")) names.emplace_back(rung.name);
  command.add_option("--only", options->only, "Run this rung alone")
      ->type_name("RUNG")
      ->check(CLI::IsMember(names));
  command.add_flag("--quick", options->quick, "Small sizes: a look, not a measurement");
  command.footer(
      "speed-up: against the first row of the same work.\n"
      "hidden: of the time that overlap can hide, the share it hid; efficiency: of the floor.\n\n"
      "Examples:\n"
      "  penstock ladder host --quick\n"
      "  penstock ladder host --only depth --bytes 1GiB\n"
      "  penstock ladder host --json | jq '.rungs[] | {name, rows: [.rows[].seconds]}'");
  command.callback([&program, options] {
    program.chosen([&program, options] { climb("host", *options, program.stop()); });
  });
}

}  // namespace

void add_ladder(Program& program) {
  CLI::App& command = *program.app().add_subcommand(
      "ladder", "Every rung of a ladder, from the plain way up: time, and share of the limit");
  command.require_subcommand(1);
  command.footer("Example:\n  penstock ladder host --quick");
  add_host(command, program);
}

}  // namespace ps::cli
