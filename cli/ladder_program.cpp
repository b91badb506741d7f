// penstock ladder: starts the program penstock-ladder in the same folder, which contains the rungs.
#include <fmt/format.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "commands.h"
#include "hand_over.h"
#include "penstock/base/error.h"
#include "program.h"

namespace ps::cli {
namespace {

void start(const std::vector<std::string>& arguments) {
  const std::filesystem::path program =
      std::filesystem::read_symlink("/proc/self/exe").replace_filename("penstock-ladder");
  if (!std::filesystem::exists(program)) {
    throw Unsupported(
        fmt::format("the ladders were not built: {} does not exist. The Python package leaves them "
                    "out; in a build from source, build the target penstock_ladder",
                    program.string()));
  }
  std::vector<std::string> words = {program.string(), "ladder"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  give_signals_back();
  replace_program(std::move(words));
  throw SystemError(errno, "start", program.string());
}

}  // namespace

void add_ladder_program(Program& program) {
  CLI::App& command = *program.app().add_subcommand("ladder", about_ladder);
  // penstock-ladder parses the remaining arguments, including --help.
  command.prefix_command();
  command.set_help_flag();
  command.callback(
      [&program, &command] { program.chosen([words = command.remaining()] { start(words); }); });
}

}  // namespace ps::cli
