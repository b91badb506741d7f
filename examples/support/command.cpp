#include "support/command.h"

#include <unistd.h>

#include <iostream>

#include "penstock/base/units.h"
#include "support/ladder.h"

namespace ladder {

void add_options(CLI::App& app, CommandOptions& options) {
  app.add_option("--device", options.device, "cpu, cuda, cuda:1 or best")->capture_default_str();
  app.add_option("--bytes", options.bytes, "bytes to move in each row, for example 2GiB");
  app.add_option("--chunk", options.chunk, "bytes of a chunk; else chosen by measuring");
  app.add_option("--only", options.only, "run this rung alone");
  app.add_flag("--quick", options.quick, "small sizes, once each: a look, not a measurement");
  app.add_flag("--json", options.json, "print JSON");
}

void run_command(const CommandOptions& options) {
  Settings settings{.device = ps::Device::parse(options.device), .quick = options.quick};
  if (!options.bytes.empty()) settings.bytes = ps::parse_bytes(options.bytes, "--bytes");
  if (!options.chunk.empty()) settings.chunk = ps::parse_bytes(options.chunk, "--chunk");
  const std::vector<Rung> chosen = select_rungs(options.only);
  Context context(settings);

  const bool terminal = isatty(STDERR_FILENO) != 0;
  const auto starting = [&](const Rung& rung) {
    if (terminal) std::cerr << "\r\033[K" << rung.name << " ..." << std::flush;
  };
  const std::vector<RungRows> results = climb(context, chosen, starting);
  if (terminal) std::cerr << "\r\033[K";
  if (options.json) {
    print_json(std::cout, context, results);
  } else {
    print_table(std::cout, context, results);
  }
}

}  // namespace ladder
