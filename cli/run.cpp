#include "run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "interrupt.h"
#include "penstock/base/error.h"
#include "penstock/measure/build.h"
#include "program.h"

namespace ps::cli {
namespace {

enum Exit : int { ok = 0, failed = 1, misused = 2, interrupted = 130 };

void complain(std::string message) {
  std::replace(message.begin(), message.end(), '\n', ' ');
  std::fputs(fmt::format("penstock: error: {}\n", message).c_str(), stderr);
}

std::string version_text() {
  const BuildInfo build = build_info();
  return fmt::format("penstock {} (commit {}, {}, CUDA {})", build.version, build.commit,
                     build.compiler, build.cuda);
}

// The command that the user was at when the line went wrong.
std::string help_hint(const CLI::App& app) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  if (!chosen.empty()) return app.get_name() + " " + help_hint(*chosen.front());
  return app.get_name() + " --help";
}

int parse_and_run(int argc, char** argv, std::span<const AddCommand> commands) {
  CLI::App app(
      "Overlaps data movement with computation, and reports how far a run was from the hardware's "
      "limit.",
      "penstock");
  app.set_version_flag("--version", version_text());
  app.require_subcommand(1);
  app.footer(
      "Example:\n  penstock doctor\n\n`penstock COMMAND --help` lists the options of a command.");

  const Interrupt interrupt;
  Program program(app, interrupt.token());
  for (const AddCommand add : commands) add(program);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {
    app.exit(asked);  // --help or --version
    return ok;
  } catch (const CLI::Error& error) {
    complain(fmt::format("{} (see: {})", error.what(), help_hint(app)));
    return misused;
  }
  program.run();
  return ok;
}

// What was printed counts only once it has arrived: a full disk behind a pipe is a failure too.
void finish_output() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    throw SystemError(errno, "write", "standard output");
  }
}

}  // namespace

int run_program(int argc, char** argv, std::span<const AddCommand> commands) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file size limit is an error to report, not a way to die
  try {
    const int code = parse_and_run(argc, argv, commands);
    finish_output();
    return code;
  } catch (const Cancelled&) {
    std::fputs("penstock: interrupted\n", stderr);
    return interrupted;
  } catch (const std::exception& error) {
    complain(error.what());
    return failed;
  }
}

}  // namespace ps::cli
