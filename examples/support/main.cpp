// main() of every example: runs the rung that is linked with it, and what that stands on.
#include <CLI/CLI.hpp>
#include <iostream>

#include "penstock/base/units.h"
#include "support/ladder.h"

int main(int argc, char** argv) {
  CLI::App app("One rung of a ladder: measures it here and prints what it found.");
  std::string device = "best", bytes, chunk;
  bool quick = false, json = false;
  app.add_option("--device", device, "cpu, cuda, cuda:1 or best")->capture_default_str();
  app.add_option("--bytes", bytes, "bytes to move in each row, for example 2GiB");
  app.add_option("--chunk", chunk, "bytes of a chunk; else chosen by measuring");
  app.add_flag("--quick", quick, "small sizes: a look, not a measurement");
  app.add_flag("--json", json, "print JSON");
  CLI11_PARSE(app, argc, argv);
  try {
    ladder::Settings settings{.device = ps::Device::parse(device), .quick = quick};
    if (!bytes.empty()) settings.bytes = ps::parse_bytes(bytes, "--bytes");
    if (!chunk.empty()) settings.chunk = ps::parse_bytes(chunk, "--chunk");
    ladder::Context context(settings);
    const auto results = ladder::climb(context, ladder::rungs(), [](const auto&, double) {});
    std::cout << (json ? ladder::as_json(context, results) : ladder::as_table(context, results));
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
