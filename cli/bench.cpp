// penstock bench: starts the benchmarks of the Python package, where their peers are available.
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "commands.h"
#include "hand_over.h"
#include "penstock/base/error.h"
#include "program.h"

namespace ps::cli {
namespace {

[[noreturn]] void refuse_start(const std::string& python, int why) {
  throw SystemError(why, "start",
                    fmt::format("{}: benchmarks run in Python 3.11 or newer; install it "
                                "(apt-get install python3), or set PENSTOCK_PYTHON",
                                python));
}

bool has_package(const std::string& python) {
  std::vector<std::string> words = {
      python, "-c",
      "import importlib.util as u, sys; sys.exit(0 if u.find_spec('penstock') else 3)"};
  pid_t child = 0;
  if (const int why =
          posix_spawnp(&child, python.c_str(), nullptr, nullptr, pointers(words).data(), environ);
      why != 0) {
    refuse_start(python, why);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void run(const std::vector<std::string>& arguments) {
  const char* const chosen = std::getenv("PENSTOCK_PYTHON");
  const std::string python = chosen != nullptr && *chosen != '\0' ? chosen : "python3";
  give_signals_back();
  if (!has_package(python)) {
    throw Unsupported(
        fmt::format("{0} cannot import penstock; install it with `{0} -m pip install .` in "
                    "Penstock's source folder, or set PENSTOCK_PYTHON to a Python that has it",
                    python));
  }
  std::vector<std::string> words = {python, "-m", "penstock.bench"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  replace_program(std::move(words));
  refuse_start(python, errno);
}

}  // namespace

void add_bench(Program& program) {
  CLI::App& command = *program.app().add_subcommand(
      "bench", "Checks an operator, then times it next to its peers and floor, or profiles it");
  command.prefix_command();  // the remaining arguments are parsed in Python
  command.footer(
      "Runs in Python: python3, or the interpreter named by PENSTOCK_PYTHON.\n"
      "`penstock bench OP --help` lists the options of an operator: --mode, --kernel, --json, "
      "...\n\n"
      "Examples:\n"
      "  penstock bench --list\n"
      "  penstock bench iterate --quick\n"
      "  penstock bench iterate --mode ncu --kernel default --kernel torch");
  command.callback(
      [&program, &command] { program.chosen([words = command.remaining()] { run(words); }); });
}

}  // namespace ps::cli
