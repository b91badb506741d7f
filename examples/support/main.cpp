// main() of every example: runs the rung that is linked with it.
#include <exception>
#include <iostream>

#include "support/command.h"

int main(int argc, char** argv) {
  CLI::App app("One rung of the host ladder: measures it here and prints what it found.");
  ladder::CommandOptions options;
  ladder::add_options(app, options);
  CLI11_PARSE(app, argc, argv);
  try {
    ladder::run_command(options);
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
